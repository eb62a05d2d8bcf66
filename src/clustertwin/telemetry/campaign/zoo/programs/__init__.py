"""Programs of the zoo that are no packages, and makers of inputs. Each is run as a script."""
