"""The detector in service: stored versions, promotion and rollback, hand-over to the service, the model registry."""
