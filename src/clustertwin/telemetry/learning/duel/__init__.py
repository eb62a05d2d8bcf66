"""The duel: contestants' results -> the next champion."""
