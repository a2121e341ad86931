"""Everything done to data in bulk after the ack: a Spark source, a sink, and pipeline jobs.

`session` gives a session with everything set; `register` makes an existing session know the
format "headwater". Sees files and the client, never the engine.
"""

from typing import TYPE_CHECKING

from headwater.core.late_names import late_names

if TYPE_CHECKING:
    from headwater.spark.sessions import register, session

__getattr__ = late_names(
    __name__,
    {
        "register": "headwater.spark.sessions:register",
        "session": "headwater.spark.sessions:session",
    },
)

__all__ = ["register", "session"]
