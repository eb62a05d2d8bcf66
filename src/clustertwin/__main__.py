"""`python -m clustertwin` is `twin`."""

from clustertwin.cli import process

process()
