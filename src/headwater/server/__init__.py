"""Listeners, connections, keys and routes. No domain rules."""
