"""Campaigns: labelled jobs -> recordings, one per round; a round belongs to exactly one split."""
