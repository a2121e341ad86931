"""Pure rules: no files, no clocks, no threads."""
