"""Studies of the generators on real logs. Production code never imports them."""
