"""A real log -> a directory that may be published: a synthetic log, its model, and a card that states the promise."""
