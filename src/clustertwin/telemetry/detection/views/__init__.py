"""The views of a detector: each turns measurements of a thread into one p-value."""
