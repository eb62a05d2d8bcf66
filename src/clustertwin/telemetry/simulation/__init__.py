"""A simulated cluster: signatures fitted to recorded campaigns -> labelled traces of whole clusters."""
