"""Group commit: tickets in, one write and at most one sync per group, acks out in order."""
