"""The simulator as a reinforcement-learning environment: a choice at every decision -> observation and reward."""
