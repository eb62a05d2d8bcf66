"""A site's live queue: squeue's answer and slurm.conf -> when jobs start, and what a change would do to them."""
