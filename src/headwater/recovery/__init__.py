"""Survey, decide, repair, replay, report. Also what verifies and repairs a log offline."""
