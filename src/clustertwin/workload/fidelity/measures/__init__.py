"""The measures of a scorecard, one file each: a real and a synthetic log -> a small record of numbers."""
