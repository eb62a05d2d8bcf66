"""Learning every night: a day's windows -> challengers -> a duel -> the next day's champion, or a reason why not."""
