"""The live view in a terminal: what a source or a service says -> one screen, with keys."""
