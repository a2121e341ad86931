"""Compiled twins of flat, hot functions, where the machine that installed this had a compiler.

Bytes in, bytes out: nothing here knows a promise or a topic, of files only that two can be synced
at once (`syncs`) and how a group is written to one (`writer`), and nothing is here that the pure
code does not do as well, only slower. A module that has a twin here asks `compiled` for it once, at
import, and keeps its own function for machines without a compiler. `HEADWATER_PURE=1` asks for
those: tests run over both. See
docs/decisions/0023-flat-loops-are-compiled.md.
"""

from headwater.native.modules import MODULES, PURE_VARIABLE, compiled, missing

__all__ = ["MODULES", "PURE_VARIABLE", "compiled", "missing"]
