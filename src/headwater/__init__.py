"""Headwater: one durable event log for one machine."""

__version__ = "0.1.0"
