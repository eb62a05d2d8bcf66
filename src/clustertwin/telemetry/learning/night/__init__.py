"""The nightly cycle: one day's traces and verdicts -> challengers, a duel and, if one wins, a new champion."""
