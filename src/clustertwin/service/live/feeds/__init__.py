"""Where the live seconds come from: this host, exporters, Prometheus, or a replayed recording."""
