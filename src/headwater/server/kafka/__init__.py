"""The Kafka protocol: a listener, connections, and one small module per family of APIs.

`listener.KafkaListener` binds the port before recovery and opens the Kafka store behind it.
`connection.KafkaConnection` reads frames, begins requests as they come and sends the responses in
their order; produces go side by side, anything else is begun alone. `api_handlers` is the table of
APIs, with the scope that each needs, and hands each request to its handler. What connections and
handlers share is in `endpoint.KafkaEndpoint`: the topics, the groups, the counters. All of it runs
on the loop thread; reads of files go to a pool of reader threads (`KafkaEndpoint.read`).

`endpoint.Call` is one request with its response; what it does not answer by itself it refuses with
the same error for everything it asked for (`refusals`, which has Kafka's codes of our errors).
`endpoint.WaitGroup` joins several pending results into one response. The handlers are in `produce`,
`fetch`, `offsets`, `topics`, `configs`, `groups`, `group_offsets`, `cluster` and `sasl`. A plain
produce of one batch takes a short way: `plain_produce`.

Users of Kafka's own (`users`, `sasl`) sign in with SASL and have scopes like API keys.
`listing` shows topics and groups over HTTP.

Batches are stored as the client sent them, checked but never decoded into records. A produce is
answered after its commit (I2), each request once (I15); who wants no answer is disconnected when
something was not stored. Start reading at `api_handlers.handle`.
"""

from headwater.core.late_names import late_modules

# A server that no client of Kafka has come to needs `listener` alone.
__getattr__ = late_modules(__name__, ("connection", "endpoint", "listing", "metrics", "users"))
