"""State machines over HTTP, and what follows their transitions.

`operations` has one function for each thing that the network may ask of machines, for HTTP and RCPX
alike. It checks what the key may name, translates ids, and returns an operation of the engine.
`handlers` has the HTTP handlers on top, `routes` is their table.

`operations` also maps the ids that a tenant uses to the full ids in the log and back (decision
0033): tenants may give the same id to different instances and never see each other's.

`transition_follower` reads transitions for one client: history from the log first, then live, at
the pace of the client. Its `TransitionFeed` prints a transition once for all followers of it. Three
consumers use it: `instance_stream` (server-sent events), the subscriptions of `rcpx`, and
`webhooks`.

`webhooks` posts transitions to configured addresses, in order, at least once. Each webhook has a
position on disk and a retention hold, so that compaction keeps the log for it up to a limit.

Everything runs on the loop thread; reads of the log go to the engine's reader threads, posts to a
client of their own. A change waits for the log only, without a task (`OneStep`). Start reading at
`operations`.
"""

from headwater.core.late_names import late_modules

# A server whose machines nobody asks for needs what follows transitions alone.
__getattr__ = late_modules(__name__, ("operations", "routes"))
