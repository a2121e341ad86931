"""Everything done to data in bulk after the ack: a Spark source, a sink, and pipeline jobs.

`session` gives a session with everything set; `register` makes an existing session know the format
"headwater". Reads files and uses the client, never the engine. The packages: `runtime` changes what
it can in Spark, `source` reads topics, `sink` writes topics, `tables` writes tables of a lake,
`sessions` opens a session that knows both, `jobs` are what the command `headwater pipeline` runs.
"""

from typing import TYPE_CHECKING

from headwater.core.late_names import late_names

if TYPE_CHECKING:
    from headwater.spark.sessions.session import register, session

__getattr__ = late_names(
    __name__,
    {"headwater.spark.sessions.session": ("register", "session")},
)

__all__ = ["register", "session"]
