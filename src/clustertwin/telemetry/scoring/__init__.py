"""Many threads at once: seconds as they arrive -> the moments a detector looks at, and the kernels that score them."""
