"""The calls that a program can make, listed once: embedded or over HTTP, blocking or awaitable.

`call_list` has each call as data, with its arguments and the type of its answer; `machine_requests`
those of state machines. Who carries out calls has a table from each kind of call to an operation:
`engine.call_operations` in this process, `client.call_operations` with requests to a server. A test
proves both tables complete.

`async_face` is the one list of methods that programs see: names, typed keywords, explanations. Each
method makes a call and awaits `_call`, or follows one with `_follow`; `AsyncDatabase` and
`AsyncClient` inherit them and say how. `async_machines` and `async_worker` are the same for state
machines and for workers: one worker, over the list of calls, for whoever has it.

The blocking twins (`face`, `machines`, `worker`, and those in `engine` and `client`) are generated
from the awaitable sources by `make twins`, and checked in. Where threads and event loops truly
differ there is a small module for each, written by hand: here `task_crew` and `thread_crew`.

Nothing here does I/O, and nothing loads the engine or HTTP. Start reading with `async_face`.
"""
