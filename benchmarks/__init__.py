"""What `make bench` measures. A package, because another package on PyPI installs a folder of the same name."""
