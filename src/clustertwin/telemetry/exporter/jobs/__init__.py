"""cgroups -> jobs: their CPU sets, owners and counters."""
