"""What a detector measures of a moment: statistics, distance from peers, embedding and error."""
