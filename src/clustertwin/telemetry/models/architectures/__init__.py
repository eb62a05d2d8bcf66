"""One file per architecture, with its config."""
