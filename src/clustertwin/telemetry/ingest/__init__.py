"""Kernel counters from any source -> traces of ratios that sum to one."""
