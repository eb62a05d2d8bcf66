"""What the service stores: events and verdicts, quiet periods, tokens, the audit log, and access to archived traces."""
