"""State machines as pure rules: definitions, guards, transitions, instances. No I/O, no clock."""

from headwater.core.late_names import late_modules

# A server reads settings that may name a machine; most name none.
__getattr__ = late_modules(__name__, ("definition",))
