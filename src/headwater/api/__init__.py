"""The calls that a program can make, listed once: embedded or over HTTP, blocking or awaitable."""
