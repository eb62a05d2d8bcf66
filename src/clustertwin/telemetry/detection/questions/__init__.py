"""Three questions about every job: is it harmed, is it unlike itself, is it new? Harm and change open events."""
