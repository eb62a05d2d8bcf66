"""From scores to events: the tracker, and the explanation of each event."""
