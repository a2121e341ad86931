"""The command line: one file per verb. The only room that prints."""

from headwater.cli.app import main

__all__ = ["main"]
