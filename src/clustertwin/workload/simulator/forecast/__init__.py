"""Start times of the jobs that wait now: a live Slurm queue + scenarios -> when each job would start."""
