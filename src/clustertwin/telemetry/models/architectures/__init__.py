"""One file for each architecture, with its configuration."""
