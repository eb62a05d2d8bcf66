"""The duel: the champion's and the challengers' results on the same data -> the next champion."""
