"""What the service sends out: metrics, notifications, the weekly digest, job reports."""
