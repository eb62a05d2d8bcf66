"""From scores to events: tracking over time, and the explanation of each event."""
