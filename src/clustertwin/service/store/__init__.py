"""What the service keeps: events and verdicts, quiet times, tokens, the audit log, archived traces."""
