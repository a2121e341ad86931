"""Settings of a server from all sides: defaults, a TOML file, the environment, flags; later wins.

Every mistake is one message that names where it stands, what was given and what is meant. All of
them are gathered before any is told. Nothing secret is ever shown: neither in messages nor among
the values that are not defaults.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from headwater.config.engine import EngineSettings
from headwater.config.keys import ENVIRONMENT_PREFIX, KEY_OF, KEYS, Key, NotThatError
from headwater.config.server import SERVE_SETTINGS, ServerSettings
from headwater.core.errors import RequestError

ReadFile = Callable[[str], str]
"""The text of a file, or a RequestError with one line that says why not."""

OTHER_VARIABLES: Final = frozenset(
    {
        *("COMPILED", "CONFIG", "CONTEXT", "CRASH", "PURE", "SPARK_ARCHIVE", "TEST_WORKERS"),
        *("TOKEN", "URL"),
        *("JOB_DELIVERIES", "JOB_LEASE_ID", "JOB_SEQ", "JOB_TAG", "JOB_TOPIC"),
    }
)
"""Ours, but not settings of the server: it must start wherever they are set."""
_OF_KUBERNETES: Final = re.compile(r"SERVICE_(HOST|PORT(_.*)?)|PORT_\d+_(TCP|UDP)(_.*)?")
_SHOWN_CHARACTERS: Final = 60
_USER_INFO: Final = re.compile(r"//[^/@]*@")
_SECRET_QUERY: Final = re.compile(r"((?:secret|token|password)[^=&]*=)[^&]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Given:
    """A value, and the source it came from."""

    key: Key
    value: Any
    source: str
    spelled: str
    """The name as it stands there: a flag, a variable, or a key of a file."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a server is started with."""

    data_dir: str = "./headwater-data"
    log_json: bool = False
    log_level: str = "info"
    server: ServerSettings = SERVE_SETTINGS
    engine: EngineSettings = field(default_factory=EngineSettings)
    given: tuple[Given, ...] = ()
    """What is not a default, by name."""

    def changed_lines(self) -> list[str]:
        """For the operator: each value that is not a default, and where it came from."""
        return [
            f"{one.key.name} = {shown(one.key, one.value)} ({one.source})" for one in self.given
        ]


class SettingsError(RequestError):
    """One or more settings that cannot be."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__("; ".join(mistakes))
        self.mistakes = mistakes


def load_settings(
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    config: str | None,
    read_file: ReadFile,
) -> Settings:
    """`flags` has what the command line was given, None for what it was not. `config` is the file
    named there; without it the environment may name one."""
    mistakes: list[str] = []
    config = config or environment.get(ENVIRONMENT_PREFIX + "CONFIG") or None
    merged: dict[str, Given] = {}
    for source in (
        _from_file(config, read_file, mistakes) if config else [],
        _from_environment(environment, read_file, mistakes),
        _from_flags(flags, mistakes),
    ):
        _add(merged, list(source), mistakes)
    if mistakes:
        raise SettingsError(mistakes)
    return _settings_of(merged)


def shown(key: Key, value: Any) -> str:
    """A value as logs and pages may show it."""
    if key.secret:
        count = len(value) if isinstance(value, (tuple, list)) else 1
        return f"{count} key{'' if count == 1 else 's'}, not shown"
    if isinstance(value, str):
        return _SECRET_QUERY.sub(r"\1...", _USER_INFO.sub("//...@", value))
    if value is None:
        return "off"
    return str(value).lower() if isinstance(value, bool) else str(value)


# -- the sources


def _from_file(path: str, read_file: ReadFile, mistakes: list[str]) -> Iterable[Given]:
    # Late: most starts have no file.
    import tomllib

    try:
        table = tomllib.loads(read_file(path))
    except tomllib.TOMLDecodeError as error:
        mistakes.append(f"{path}: not TOML: {str(error)[:1].lower()}{str(error)[1:]}")
        return
    except RequestError as error:
        mistakes.append(str(error))
        return
    for name, value in table.items():
        key = KEY_OF.get(name)
        if key is None:
            mistakes.append(f"{path}: {_unknown(name, list(KEY_OF), isinstance(value, dict))}")
            continue
        given = _read(key, value, path, name, read_file, mistakes)
        if given is not None:
            yield given


def _from_environment(
    environment: Mapping[str, str], read_file: ReadFile, mistakes: list[str]
) -> Iterable[Given]:
    variables = {key.variable: key for key in KEYS}
    for variable, value in sorted(environment.items()):
        rest = variable.removeprefix(ENVIRONMENT_PREFIX)
        if rest == variable or rest in OTHER_VARIABLES or _OF_KUBERNETES.fullmatch(rest):
            continue
        key = variables.get(variable)
        if key is None:
            mistakes.append(f"environment: {_unknown(variable, list(variables))}")
            continue
        if not value.strip():
            continue  # set to nothing is how a shell or a unit file unsets
        given = _read(key, value, "environment", variable, read_file, mistakes)
        if given is not None:
            yield given


def _from_flags(flags: Mapping[str, Any], mistakes: list[str]) -> Iterable[Given]:
    for name, value in flags.items():
        if value is None:
            continue
        key = KEY_OF[name]
        given = _read(key, value, "command line", key.flag, None, mistakes)
        if given is not None:
            yield given


def _read(
    key: Key,
    value: Any,
    source: str,
    spelled: str,
    read_file: ReadFile | None,
    mistakes: list[str],
) -> Given | None:
    try:
        where = "it"
        if key.secret and isinstance(value, str) and value.startswith("@") and read_file:
            where = value[1:].strip()
            value = read_file(where)
        read = key.read(value)
        if read == () and isinstance(value, str):
            # A file of keys that is empty must not mean a server without keys.
            raise RequestError(f"there is nothing in {where}; put one a line there, or unset it")
        return Given(key, read, _shown_source(source, spelled), spelled)
    except NotThatError as error:
        but = "" if key.secret else f", not {_shortened(value)}"
        mistakes.append(f"{source}: {spelled} must be {error}{but}")
    except RequestError as error:
        mistakes.append(f"{source}: {spelled}: {error}")
    return None


def _shown_source(source: str, spelled: str) -> str:
    return source if source not in ("environment", "command line") else spelled


def _unknown(name: str, known: list[str], is_table: bool = False) -> str:
    if is_table:
        return f"there are no sections such as [{name}]; all settings stand at the top"
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if near:
        return f"there is no setting {name}; did you mean {near[0]}?"
    return f"there is no setting {name}; docs/cli.md lists them"


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."


# -- putting them together


def _add(merged: dict[str, Given], source: list[Given], mistakes: list[str]) -> None:
    """A later source wins. Within one, two names of one thing are a mistake."""
    here: dict[str, Given] = {}
    for given in source:
        twin = here.get(given.key.path)
        if twin is not None:
            mistakes.append(
                f"{given.source}: {twin.spelled} and {given.spelled} mean the same thing; give one"
            )
        here[given.key.path] = given
    merged |= here


def _settings_of(merged: Mapping[str, Given]) -> Settings:
    defaults = _sections(Settings())
    wanted: dict[str, dict[str, Any]] = {section: {} for section in defaults}
    changed: list[Given] = []
    for given in merged.values():
        is_default = True
        for path in given.key.path.split(","):
            section, _, name = path.partition(".")
            wanted[section][name] = given.value
            is_default = is_default and getattr(defaults[section], name) == given.value
        if not is_default:
            changed.append(given)
    made = {name: replace(section, **wanted[name]) for name, section in defaults.items()}
    top: Settings = made["top"]
    return replace(
        top,
        server=replace(made["server"], limits=made["limits"], deadlines=made["deadlines"]),
        engine=replace(
            made["engine"],
            wal=made["wal"],
            segments=made["segments"],
            machines=replace(
                made["machines"], compaction=made["compaction"], history=made["history"]
            ),
        ),
        given=tuple(sorted(changed, key=lambda given: given.key.name)),
    )


def _sections(settings: Settings) -> dict[str, Any]:
    return {
        "top": settings,
        "server": settings.server,
        "limits": settings.server.limits,
        "deadlines": settings.server.deadlines,
        "engine": settings.engine,
        "wal": settings.engine.wal,
        "segments": settings.engine.segments,
        "machines": settings.engine.machines,
        "compaction": settings.engine.machines.compaction,
        "history": settings.engine.machines.history,
    }
