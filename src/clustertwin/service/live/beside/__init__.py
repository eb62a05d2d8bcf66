"""Work beside the loop: repeated turns in threads of their own, and the nightly learning."""
