"""clustertwin: a digital twin of a compute cluster."""

__version__ = "0.1.0"
