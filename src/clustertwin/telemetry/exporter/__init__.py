"""The node's agent: kernel files -> /metrics and a ring of the last minutes, within 25 MB of memory."""
