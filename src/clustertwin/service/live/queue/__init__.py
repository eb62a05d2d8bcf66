"""The jobs that wait: forecasts of their starts, made in a process beside the service, and how good they were."""
