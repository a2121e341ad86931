"""The dashboard: plain files that a browser runs as they are. Served by `headwater.server`."""
