"""`headwater serve --workers N`: gateway processes for connections, one sequencer for the data.

The process that the user starts becomes the supervisor. It binds the ports, forks one sequencer
and N gateways before any thread exists, starts them again when they die, and ends them.

- A gateway owns its connections: sockets, TLS, parsing, deadlines, the order of answers. It knows
  no topic and no key. A parsed request goes to the sequencer as one frame, and its answer comes
  back printed.
- What lies in sealed segments it prints itself: the sequencer plans a read and says where the
  records are (`wire.page`, `page_files`).
- The sequencer owns the data directory. It dispatches each request as a server without workers
  does: the same routes, keys, quotas and handlers, with a `HttpCaller` that stands for the
  client's connection.

`wire.channel` has the frames of the channel between them, `channel.Channel` is one end of it on an
event loop. A further kind of frame is a row in `wire.channel.ChannelKind`, a handler that one side
gives to `Channel.register`, and a `Channel.send` on the other side.
"""

from headwater.core.late_names import late_modules

# The sequencer's side; a server without workers needs nothing of this package.
__getattr__ = late_modules(__name__, ("links",))
