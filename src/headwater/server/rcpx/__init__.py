"""State machines over RCPX: connections, sessions, operations, subscriptions."""
