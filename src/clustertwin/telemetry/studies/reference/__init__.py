"""The study: campaigns -> tables, figures and one report on sampling, reconstruction, detection and separability."""
