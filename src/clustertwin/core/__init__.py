"""Shared nouns, ports and the error tree: numpy only, no I/O."""
