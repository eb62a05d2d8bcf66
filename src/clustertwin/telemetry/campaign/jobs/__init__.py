"""The job programs: each works on its CPUs until it is ended, and keeps its files in its scratch directory."""
