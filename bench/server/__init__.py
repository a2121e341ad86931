"""The server under load, beside Redis in the same run. Everything on loopback."""
