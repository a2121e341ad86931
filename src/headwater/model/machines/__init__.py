"""State machines as pure rules: definitions, guards, transitions, instances. No I/O, no clock."""
