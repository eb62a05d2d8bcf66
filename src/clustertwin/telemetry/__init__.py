"""What the cluster is doing: kernel counters -> traces -> windows."""
