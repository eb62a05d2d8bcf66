"""One file for each kernel subject: kernel file -> samples."""
