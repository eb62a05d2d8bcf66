"""The live loop: feed -> trace buffer -> detector -> tracker -> store, and a snapshot each second."""
