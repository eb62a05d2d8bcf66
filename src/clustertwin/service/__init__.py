"""The live service: it scores a cluster's threads, stores events, and serves pages, an API and metrics."""
