"""The bytes of state machines: log entries, segment names, snapshots."""
