"""What the service tells others: metrics, notifications, digests, job reports."""
