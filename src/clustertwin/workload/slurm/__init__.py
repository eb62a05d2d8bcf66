"""Slurm as a site runs it: its configuration and its jobs -> start times, simulated as slurmctld schedules them."""
