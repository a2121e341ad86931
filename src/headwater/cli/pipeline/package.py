"""`headwater pipeline package`: what spark-submit needs to run pipeline jobs.

spark-submit runs a file, not a module or a command: `package` writes one that is the command
group itself, beside a zip of the package.
"""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Annotated

import typer

from headwater.cli.option_groups import JsonOption
from headwater.cli.output import say, say_json, shown_path
from headwater.core.errors import AccessError
from headwater.disk import PosixDisk, replace_file
from headwater.disk.cache import make_directories

ZIP_NAME = "headwater.zip"
SCRIPT_NAME = "headwater_pipeline.py"
SCRIPT = b'''\
"""Written by `headwater pipeline package`: a pipeline job, run by spark-submit."""

from headwater.cli.pipeline import pipeline

pipeline(prog_name="headwater pipeline")
'''


def package(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to put the two files.")],
    as_json: JsonOption = False,
) -> None:
    """Write what spark-submit needs into DIR: the package as a zip, and the program to run.

    The Python of the driver and of the executors must have what the package builds on; the zip
    brings only the package itself.
    """
    from headwater.disk.package import package_files
    from headwater.spark.sessions.package_zip import PACKAGE, zip_of

    target = directory.absolute()
    files = {ZIP_NAME: zip_of(package_files(PACKAGE, ".py")), SCRIPT_NAME: SCRIPT}
    paths = [_write(target / name, contents) for name, contents in files.items()]
    if as_json:
        say_json({"zip": str(paths[0]), "script": str(paths[1])})
        return
    zip_path, script = map(shown_path, paths)
    say(f"spark-submit --master MASTER --py-files {zip_path} {script} JOB ...")


def _write(path: PurePath, contents: bytes) -> PurePath:
    try:
        make_directories(path.parent)
        replace_file(PosixDisk(), path, contents)
    except OSError as error:
        why = (error.strerror or "").lower()
        raise AccessError(f"{path.name} cannot be written ({why})", path=path) from error
    return path
