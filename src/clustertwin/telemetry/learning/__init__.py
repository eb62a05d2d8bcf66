"""Nightly learning: one day's telemetry -> challengers -> a duel with the champion -> the next champion."""
