"""Remote write: requests that a sender pushes -> readings of nodes."""
