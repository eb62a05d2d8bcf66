"""Kernel text in, exposition text out."""
