"""Other durable logs: their processes, load on them, and the check of what they hold."""
