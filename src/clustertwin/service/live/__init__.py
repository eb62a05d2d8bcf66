"""The live loop: feed -> buffer -> detector -> tracker -> store, and a snapshot each second."""
