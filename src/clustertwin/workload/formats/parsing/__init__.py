"""What the readers share: bytes -> columns of words with line numbers -> checked columns -> a job table."""
