"""A simulated month under each learning strategy."""
