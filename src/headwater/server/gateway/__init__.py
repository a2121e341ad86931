"""`headwater serve --workers N`: gateway processes for connections, one sequencer for the data.

The process that the user starts becomes the supervisor (`supervisor`, `processes`). It binds the
ports (`inheritance`), forks one sequencer and N gateways before any thread exists, starts them
again when they die, and ends them.

- A gateway (`gateway`) owns its connections: sockets, TLS, parsing, keys, deadlines, the order of
  answers. Its dispatcher is that of a server without workers, and its routes end in the
  `forwarder`; plain writes of a turn go as columns (`turn_sender`). `byte_connection` is one whose
  bytes go through as they are. `uplink` is its end of the channel, which comes up again with the
  next sequencer.
- The sequencer (`server.server`, with `links` instead of ports) owns the data directory. It
  dispatches each request as a server without workers does: the same routes, keys, quotas and
  handlers, with a `forwarded_call` that stands for the client's connection, and a
  `stream_transport` for what is streamed. `byte_stream` gives Kafka and RCPX connections theirs.

`wire.channel` has the frames of the channel between them, `channel.Channel` is one end of it on an
event loop. A further kind of frame is a row in `wire.channel.ChannelKind`, a handler that one side
gives to `Channel.register`, and a `Channel.send` on the other side.

Kept here: a request is answered once (I15), whichever process dies; nothing that was forwarded is
forwarded again (I2), since it may have been done; requests of one connection take effect in their
order, so one that stands behind a slow one names it (`REQUEST.behind`). A side that the other does
not read stops what would make more frames: the sequencer stops reading, a gateway stops reading its
clients and goes on reading the channel, so the two never wait for each other. Start reading at
`supervisor`, then `forwarder` and `links`.
"""

from headwater.core.late_names import late_modules

# The sequencer's side; a server without workers needs nothing of this package.
__getattr__ = late_modules(__name__, ("links",))
