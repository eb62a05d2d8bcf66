"""Programs that impose a fault on a job and need nothing but Python."""
