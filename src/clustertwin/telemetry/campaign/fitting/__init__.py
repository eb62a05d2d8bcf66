"""Recorded campaigns -> signatures, and how well simulated windows match recorded ones."""
