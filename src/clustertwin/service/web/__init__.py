"""The HTTP interface: access control, the API and the pages."""
