"""Topic segments on disk: written, sealed, read, flagged, rewritten, dropped, moved to cold."""
