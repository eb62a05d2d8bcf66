"""What a job's processes wait for: a job on this node -> evidence, and the rank that differs from the others."""
