"""Job logs as Slurm sees them: sacct or sbatch events -> one table."""
