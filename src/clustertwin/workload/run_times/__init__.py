"""Run times predicted from the jobs that ended before."""
