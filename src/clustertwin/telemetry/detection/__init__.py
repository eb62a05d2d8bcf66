"""Anomaly detection: moments -> scores -> events. `features`, `views`, the detector, `events`."""
