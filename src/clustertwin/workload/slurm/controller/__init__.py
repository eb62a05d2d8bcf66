"""slurmctld in compiled loops: arrays of a site and its jobs -> when and where each job starts."""
