"""How the server is: liveness, readiness, status, and the lines it logs when something changes.

`handlers` answers the probes: `/v0/health` says that the process lives, `/v0/ready` that requests
will be served, with the parts of the directory that could not be opened. `status` is the server at
a glance for the dashboard; what it costs does not grow with the number of topics. The trace has
what writes waited for, where that was long.

Four watches turn states into log lines, each change once: a round of maintenance failed; a log is
full, poisoned or takes writes again; records cannot be read, by topic and file; entering and
leaving the rungs of the governor (`watches`). `reports` has the records that cannot be read for
answers and metrics, beside who holds old parts of a log and the gaps that consumers got.
`App.check_deadlines` runs the first three every half second; the governor has its own timer of 100
ms, which also resumes delivery.

`overview.Overview` is what the handlers are given: the server as a whole. It sums over
topics, so many of them a sample.

`garbage` says when Python looks for garbage among what has lived long: when no request waits.

A probe needs no key and therefore shows no names of topics or receivers; a key with prefixes sees
its own part. The paths of files are for admins. All of it runs on the loop thread and reads state
that others keep. Start reading at `status.status`.
"""
