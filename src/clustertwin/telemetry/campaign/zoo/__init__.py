"""Real programs, run one at a time with imposed faults, and recorded as raw kernel counters."""
