"""The real Slurm, for the tests that run campaigns through it."""

from tests.slurm import slurm

__all__ = ["slurm"]
