"""A simulated cluster: recorded campaigns -> signatures -> whole clusters of labelled traces."""
