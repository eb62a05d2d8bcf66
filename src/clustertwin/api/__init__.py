"""What `import clustertwin as ct` offers: one function for each task. `clustertwin/__init__.py` has the table."""
