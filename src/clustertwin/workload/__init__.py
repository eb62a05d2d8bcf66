"""What the cluster is asked to do: job logs, generators, fidelity, scheduling."""
