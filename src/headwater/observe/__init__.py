"""Metrics and logs, each declared once."""
