"""What a detector measures of each thread: statistics, deviation from peers, embedding and reconstruction error."""
