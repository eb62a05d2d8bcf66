"""Users' habits under differential privacy: noisy counts of a log -> synthetic logs of strangers."""

from clustertwin.workload.generators.private.private_generator import FittedPrivate, Private

__all__ = ["FittedPrivate", "Private"]
