"""State machines joined to their log: apply, commit, watch, snapshot, compact."""
