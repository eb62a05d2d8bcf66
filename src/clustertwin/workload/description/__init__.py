"""What is in one job log: figures and plots."""
