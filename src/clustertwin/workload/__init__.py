"""The workload half: job logs, synthetic logs and their fidelity, scheduling."""
