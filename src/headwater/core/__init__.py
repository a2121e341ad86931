"""Words every room may use: errors, clocks, durability classes, units."""
