"""SASL users: users with a password, an organisation and scopes."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from headwater.core.errors import RequestError
from headwater.server.access.keys import EVERYTHING, Scope, parse_scopes
from headwater.server.kafka.scram import ScramKeys, scram_keys

FIRST_ORGANISATION: Final = 1
ORGANISATION_MAX: Final = 2**64 - 1
_PASSWORD_CHARACTERS_MIN: Final = 8
_SALT_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Principal:
    """On whose behalf a connection speaks."""

    name: str
    organisation: int
    scopes: Scope


ANYONE: Final = Principal("anyone", FIRST_ORGANISATION, EVERYTHING)
"""Where there are neither users nor keys: every client that connects may do everything."""


class SignIn(Protocol):
    """One exchange. `principal` is set when it ended well."""

    principal: Principal | None

    def step(self, message: bytes) -> bytes:
        """What to answer."""


@dataclass(frozen=True, slots=True)
class User:
    principal: Principal
    digest: bytes
    """SHA-256 of the password, for PLAIN."""
    keys: ScramKeys


def parse_user(text: str) -> User:
    """name:password[:organisation[:scopes]]; a mistake names the part, never the password."""
    name, _, rest = text.strip().partition(":")
    password, _, rest = rest.partition(":")
    organisation_text, _, scope_text = rest.partition(":")
    if not name or not name.isprintable():
        raise RequestError("a Kafka user needs a name")
    if len(password) < _PASSWORD_CHARACTERS_MIN:
        raise RequestError(f"Kafka user {name!r} needs a password of at least 8 characters")
    organisation = FIRST_ORGANISATION
    if organisation_text:
        # Organisation 0 is the log's own.
        if not organisation_text.isdecimal() or not 0 < int(organisation_text) <= ORGANISATION_MAX:
            raise RequestError(f"Kafka user {name!r} has an organisation that is no number from 1")
        organisation = int(organisation_text)
    principal = Principal(name, organisation, parse_scopes(scope_text, f"Kafka user {name!r}"))
    keys = scram_keys(password, secrets.token_bytes(_SALT_BYTES))
    return User(principal, _digest(password.encode()), keys)


class Users:
    def __init__(self, texts: Iterable[str]) -> None:
        self._users: dict[str, User] = {}
        for text in texts:
            user = parse_user(text)
            if user.principal.name in self._users:
                raise RequestError(f"there are two Kafka users {user.principal.name!r}")
            self._users[user.principal.name] = user
        self._pretended_salt_key = secrets.token_bytes(32)

    def __len__(self) -> int:
        return len(self._users)

    def check_password(self, name: str, password: bytes) -> Principal | None:
        """PLAIN. Takes as long for a name that is not known."""
        user = self._users.get(name)
        digest = _digest(password)
        expected = bytes(len(digest)) if user is None else user.digest
        same = hmac.compare_digest(expected, digest)
        return user.principal if user is not None and same else None

    def scram_keys(self, name: str) -> ScramKeys:
        """SCRAM. Of a name that is not known: keys that no password fits, the same each time."""
        user = self._users.get(name)
        if user is not None:
            return user.keys
        salt = hmac.digest(self._pretended_salt_key, name.encode(), "sha256")[:_SALT_BYTES]
        return ScramKeys(salt, secrets.token_bytes(32), secrets.token_bytes(32))

    def principal(self, name: str) -> Principal | None:
        user = self._users.get(name)
        return None if user is None else user.principal


def _digest(password: bytes) -> bytes:
    return hashlib.sha256(password).digest()
