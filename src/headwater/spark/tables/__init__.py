"""Tables in a lake: Delta, Iceberg and plain Parquet, written exactly once by one protocol."""
