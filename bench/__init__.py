"""Benchmarks: `python -m bench [names...]`. Nothing here is asserted; figures carry conditions."""
