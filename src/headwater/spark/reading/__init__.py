"""Reading topics as Arrow batches: from files, from a cold tier, or from a server."""
