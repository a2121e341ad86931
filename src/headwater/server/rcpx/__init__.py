"""RCPX, the binary protocol of state machines: a listener, connections, operations, subscriptions.

`listener.RcpxListener` owns the port, `endpoint.RcpxEndpoint` is what all connections share.
`connection.RcpxConnection` executes a request after every request that its connection sent before
it: writes that follow each other are begun together and share the log's groups; anything else waits
until nothing is under way and then runs alone. The connection reads nothing more while a request
waits.

`operations.OPERATIONS` is the table: the name of an operation, the decoder of its params, the scope
it needs, the function that runs it. Most of those functions are `machines.operations`, shared with
HTTP. `RcpxRunner` carries an operation of the engine to its response. HELLO, AUTH, PING and BYE
stand beside the table.

APPLY_EVENT is most of the traffic and has a short way: `event_requests` decodes it at once and
hands it to the batcher of the machines' log, together with those of other connections.

`subscriptions` pushes transitions to clients that watch, while they take what was sent before; a
client that is too slow gets a gap with the first and last offset of what it missed.

Everything runs on the loop thread and without a task per request. `caller` turns our errors into
those of the protocol. Start reading at `connection` and `operations`.
"""

from headwater.core.late_names import late_modules

# `listener` is loaded where the port is on, the rest when its first client comes.
__getattr__ = late_modules(__name__, ("connection", "endpoint", "listener"))
