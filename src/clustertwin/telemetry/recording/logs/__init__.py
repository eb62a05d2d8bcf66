"""Small logs beside the arrays of a recording, synced line by line."""
