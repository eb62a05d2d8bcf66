"""A simulated month under each learning strategy -> errors, false events, recall, forgetting, training time."""
