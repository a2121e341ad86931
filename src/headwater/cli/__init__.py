"""The command line: one file per verb. The only room that prints."""

from headwater.cli.entry import main

__all__ = ["main"]
