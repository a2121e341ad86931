"""The server: listeners, connections, keys and routes over one engine. No domain rules live here.

One event loop, on one thread, runs everything in this room; it is also the owner of the engine's
state, so a handler reads that state without a lock and must never block. File work goes to the
engine's reader threads, and the shard threads call back into the loop when a commit is on disk.

`server.Server` binds the HTTP port, opens the database, then opens the Kafka and RCPX listeners,
and stops them in the opposite order. `app.App` puts one running server together and is the only
module that knows all parts: each of them is handed what it needs when it is made, and imports only
what is below it.

A request takes this way: a connection of a protocol parses it (`http`, `kafka`, `rcpx`), `access`
says what its key may do, a handler checks its parameters and starts an operation of the engine,
`operation_runner` carries the operation to its end, and the connection sends the answer in the
order of the requests. Nothing on the write path creates a task (I15: each ticket is answered once).

`backend.Backend` is the way from there to the engine: it refuses while recovery runs and says
whether a name is about the engine's topics or Kafka's. Each protocol has an `endpoint`, which its
connections share: limits, log, the open connections. `routes` is the table of all routes; each
names the service that its handler gets (`Route.served_by`): the backend, or as much more of the
server as it needs.

- `http`       HTTP/1.1: connections, routes, and the handlers of topics, queues and routers
- `streams`    what the server sends unasked: server-sent events, WebSockets, jobs for workers
- `machines`   state machines over HTTP, their event streams and webhooks
- `kafka`, `rcpx`   the two binary protocols, each with its own listener and connections
- `access`     API keys and scopes, quotas, and which web pages may use a server without keys
- `health`, `metrics`, `dashboard`   what operators read; `metrics_listener` is a port of their own

`connection` is what connections of all protocols share: flow control, deadlines, one limit for
all, and how they end. `intake` reads the sockets of all busy connections with one call a turn;
`backend` is the engine once it is there, and decides whether a topic name is about the engine or
about an organisation's Kafka topics; `ports` is what binding a port takes. Start reading at
`http.dispatcher`, `connection` and `http.connection`.
"""

from headwater.core.late_names import late_modules

# The first page of the dashboard, and metrics on a port of their own.
__getattr__ = late_modules(__name__, ("dashboard", "metrics_listener"))
