"""The last minutes of every thread: traces as they arrive -> moments that a detector scores."""
