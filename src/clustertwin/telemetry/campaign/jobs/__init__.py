"""The job programs: each runs on its CPUs until it is ended, and writes only to its scratch directory."""
