"""Typed settings, read once and passed down by section."""
