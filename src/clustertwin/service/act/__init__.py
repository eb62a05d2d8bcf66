"""From an event to an action that a person allowed: evidence, outcomes, policy, journal, Slurm's commands, savings."""
