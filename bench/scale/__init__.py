"""How rates and latencies go with topics, connections, shards, worker processes and cores.

`python -m bench scale` (`make bench-scale`) runs a matrix of short cells in bounded time. It is a
program of its own beside the registry of benchmarks, because it also runs from a packed
environment: without git, matplotlib, pyarrow and test tools, on a machine without a network.

- `matrix` has what is chosen: cells, sides, how long it takes.
- A *scene* (`topics`, `watchers`, `produce`) starts every side that a row of cells needs (Headwater
  once for each choice of shards and workers, and the peers that are installed), prepares them,
  gives a contender for each cell, and at its end counts what each side holds: a figure of work
  that was not done fails. A scene names the peers that are missing, in one line each.
- `program` lets the contenders of a cell take turns, ABAB, and writes each figure as soon as it is
  known, one JSON object a line, so that a run that is cut short has lost nothing.
- `figures` is a cell's result, `tables` prints them as Markdown, `drawing` as SVG.

Load is made by wrk with `request.lua`, redis-benchmark, `bench.peers.nats_load`,
`bench.server.delivery` and `bench.kafka.load`. They share the machine with the servers; every
figure has the cores that they used, and the first lines of a run say what wrk alone reaches.
Start reading in `program`.
"""
