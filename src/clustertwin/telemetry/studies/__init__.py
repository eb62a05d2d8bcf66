"""Studies of the method. Production code never imports them."""
