"""Compiles `src/headwater/native` while the package is built, and goes on without if that fails.

The package works without its compiled parts, only slower, so a machine that has no compiler still
installs. `HEADWATER_PURE=1` does not try; `HEADWATER_COMPILED=1` takes a failure for one.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACE = Path("src/headwater/native")


class CompileHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or os.environ.get("HEADWATER_PURE"):
            return
        root = Path(self.root)
        try:
            made = compile_in(root)
        except BaseException as error:  # whatever a compiler or its absence may raise
            if os.environ.get("HEADWATER_COMPILED") or isinstance(error, KeyboardInterrupt):
                raise
            self.app.display_warning(
                f"headwater: not compiled ({type(error).__name__}: {error}); it works, slower. "
                "A C compiler and Python's headers make it fast: apt-get install gcc python3-dev"
            )
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["artifacts"] += [f"/{path.relative_to(root).as_posix()}" for path in made]


def compile_in(root: Path) -> list[Path]:
    """Compile every `.pyx` beside itself; only what is older than its source."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    sources = sorted((root / PLACE).glob("*.pyx"))
    shared = [path.stat().st_mtime for path in (root / PLACE).glob("*.pxd")]
    made = [source.with_name(source.stem + suffix) for source in sources]
    stale = [
        source
        for source, target in zip(sources, made, strict=True)
        if not target.exists() or target.stat().st_mtime < max([source.stat().st_mtime, *shared])
    ]
    if stale:
        _compile(root, stale)
    return made


def _compile(root: Path, sources: list[Path]) -> None:
    import pyarrow
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    extensions = [
        Extension(
            f"headwater.native.{source.stem}",
            [str(source.relative_to(root))],
            # XXH3 as Arrow ships it: a header, so that it is compiled into the loops.
            include_dirs=[pyarrow.get_include()],
            extra_compile_args=["-O3", "-g0", "-fno-plt", "-Wno-unused-function"],
        )
        for source in sources
    ]
    before = Path.cwd()
    os.chdir(root)
    try:
        modules = cythonize(
            extensions, build_dir="build/native", language_level=3, quiet=True, force=True
        )
        distribution = Distribution({"ext_modules": modules, "package_dir": {"": "src"}})
        command = build_ext(distribution)
        command.inplace = command.force = True  # what is stale was decided above
        command.build_temp = "build/native"
        command.ensure_finalized()
        command.run()
    finally:
        os.chdir(before)


if __name__ == "__main__":
    for path in compile_in(Path(__file__).parent):
        sys.stdout.write(f"{path.name}\n")
