"""HTTP/1.1: connections, the request that is being read, the route table, and the handlers.

Everything runs on the loop thread. `connection.HttpConnection` owns one socket: it feeds bytes to
`request_parser`, keeps the answers in the order of the requests, stops reading while the client
does not take its answers, and enforces deadlines that a byte now and then does not extend. What a
client can make the server hold is bounded (`request_size`, the pipeline limit).

A request whose head came before, byte for byte, is not parsed again: `request_head.KnownHeads`
keeps the parsed head with its route, key and usage. `exchange.Exchange` is one request with its
answer. `dispatcher.Dispatcher` looks up its route in `route_table`, checks its key and lets its
handler begin. `endpoint.HttpEndpoint` is what the connections of one port share.

`routes.HTTP_ROUTES` is the contract of this package as a table: method, path, handler, scope,
bodies, errors. `server.routes` joins it to those of the other packages; the OpenAPI document
(`openapi`) and docs/access.md are compared with all of them.

Handlers are plain functions of a service and the exchange; most services are the `Backend`, and the
route names the others. `operation.HttpOperation` carries an operation of the engine to its answer.
Those of writes and reads take the short ways: `write_batcher` makes one append of the single writes
that one turn of the loop read (decision 0022), and prints and sends their answers together;
`turn_writer` fills the turn with groups of this process or, through `turn_receiver`, of many
gateways (decision 0044),
`write_handler` does one write by itself, `read_handlers` joins an answer from stored
bytes (`json_rows`, which also prints the jobs of a claim). The others (`topic_handlers`,
`queue_handlers`, `router_handlers`) begin an operation of the engine.

Kept here: a write is answered once, after its commit (I2, I15). Start reading at `connection` and
`exchange`, then at the handler of the route you care about.
"""
