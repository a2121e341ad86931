"""Who may do what, and how much of it.

`keys` holds the API keys: a key has scopes (read, write, work, delete, own, admin), may be limited
to names with certain prefixes, and belongs to an organisation. Only digests are kept and compared,
each of them in constant time. A server without keys serves everybody who reaches it, which is why
it listens on loopback only. Keys do not change while the server runs, so an admission is remembered
with the head of the request or with the connection.

`quotas` counts what each key uses: requests under way, open streams, connections. Limits are
shares: no key can take all connections of the server or all of its streams.

`access` protects a server without keys from web pages: it compares Host, Origin, Referer and
Sec-Fetch-Site and refuses requests that a page of another site sent.

All of it is called on the loop thread. docs/access.md lists every route with its scope; a test
compares it with the route table. Start reading at `keys.ApiKey`.
"""
