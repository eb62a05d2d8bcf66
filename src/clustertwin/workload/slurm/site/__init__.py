"""A Slurm site: its configuration files -> frozen nouns, and a report of what the model leaves out."""
