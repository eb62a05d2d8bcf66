"""Fast inference without autograd: the default model and graph attention as compiled kernels."""
