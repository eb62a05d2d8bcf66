"""Campaigns: labelled jobs -> recordings, one per round, each wholly of one split."""
