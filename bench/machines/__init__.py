"""State machines under load: a server process, clients in another."""
