"""The detector in service: stored versions, promotion, hand-over and the model registry."""
