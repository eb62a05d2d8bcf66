"""The reference study: campaigns -> tables and figures on sampling, reconstruction, detection and separability."""
