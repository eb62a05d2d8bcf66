"""The nightly cycle: a day's traces and verdicts -> challengers."""
