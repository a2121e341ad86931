"""Tables of a lake: Delta, Iceberg and plain Parquet, written exactly once by one protocol.

`table.Table` is the protocol, `delta`, `iceberg` and `parquet` implement it without a JVM, the
first two on what they share; `formats` opens one by name. Executors write
Parquet files into a directory of the batch (`file_writer`); the driver makes all files of a batch
part of the table with one commit that carries the app id, the batch number and the checkpoint.
`columns` decides how a table's columns may change, `location` names directories and object stores,
`sink` is the format "headwater-table" for any query.

Promises: a batch is part of a table once or not at all, also when a driver dies around the commit;
a commit that lost against another writer is tried again on the newer table; an app id used with
another checkpoint is refused, because its batch numbers would mean other rows.

Used by the job `lake` (package `jobs`) and by `sink`. Start reading in `table`.
"""
