"""Bytes to typed requests and back, without sockets."""

from headwater.core.late_names import late_modules

# Between a gateway and the sequencer.
__getattr__ = late_modules(__name__, ("channel",))
