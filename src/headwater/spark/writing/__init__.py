"""The sink's rooms: options, rows as JSON, chunks, the ledger, sending, and mending."""
