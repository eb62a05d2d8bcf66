"""`twin top`: the live view in a terminal, of one source or of a whole service."""
