"""The exporter's HTTP server: requests -> /metrics, /ring and the landing page."""
