"""What the server sends without a request for each message: records, and jobs for workers.

`delivery.Delivery` is the scheduler. The engine calls it for every write (as the owner, on the loop
thread); it puts the topic into the ready set and serves a few topics a turn, after the acks of that
commit are out. Serving a topic means to pump each of its followers from its own cursor. Records
that several streams want from one position are read and rendered once, and kept for that turn only,
so that the server never sends what was deleted since.

`topic_subscriptions.TopicSubscriptions` holds the topics that one client follows, with a cursor for
each, and pumps them while the client's socket takes bytes. A slow client costs a bounded buffer and
loses nothing but what the topic's own limits take (I14). Two streams use it: `watch_sessions`
(server-sent events of a watch that it keeps) and `websocket` (subscribe and
publish over one connection).

`job_pusher` serves the workers of a queue: one line of workers for each queue and one task that
shares the ready jobs evenly. A worker has at most `max` jobs in hand; its jobs are free for others
when its connection ends.

`open_streams.OpenStreams` counts the streams of each key, and calls `beat` for heartbeats and `end`
when the server stops. Start reading at `Delivery.on_news`.
"""

from headwater.core.late_names import late_modules

# With the library for WebSockets, by the first who does upgrade.
__getattr__ = late_modules(__name__, ("websocket",))
