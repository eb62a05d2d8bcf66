"""Seeing what is wrong: the last minutes of every thread -> one calibrated score each, events, and reasons."""
