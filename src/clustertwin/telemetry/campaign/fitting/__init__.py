"""Fit signatures to recorded campaigns, and compare simulated with recorded windows."""
