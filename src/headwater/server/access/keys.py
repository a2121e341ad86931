"""Who may do what: bearer keys with scopes and name prefixes.

What takes which scope stands beside each route, RCPX operation and Kafka API; docs/access.md has
all of it in one table, which a test holds against the server.

A key is kept as its SHA-256, compared in constant time. Without any key everything is allowed,
which is why a server without keys listens on loopback only.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from enum import Flag, auto
from typing import Final

import msgspec

from headwater.core.errors import HeadwaterError, RequestError
from headwater.core.limits import INTEGER_MAX
from headwater.model.machines.errors import MachineError
from headwater.wire.http_errors import HttpError


class Scope(Flag):
    NONE = 0
    READ = auto()
    WRITE = auto()
    DELETE = auto()
    WORK = auto()
    """To claim jobs and to ack or nack them. A key that may read and write has it, and so has one
    that may read and delete: what is acked is gone."""
    OWN = auto()
    """To change settings and routers and to drop: what can take records away from others."""
    ADMIN = auto()
    """What is about the whole server. No key with prefixes has it."""


OWNER: Final = Scope.READ | Scope.WRITE | Scope.DELETE | Scope.WORK | Scope.OWN
EVERYTHING: Final = OWNER | Scope.ADMIN
_ORGANISATION: Final = "org="
ORGANISATION_DEFAULT: Final = 1
_SCOPES: Final = {
    "read": Scope.READ,
    "write": Scope.WRITE,
    "delete": Scope.DELETE,
    "owner": OWNER,
    "admin": EVERYTHING,
}
_LACKS: Final = {
    Scope.READ: "read",
    Scope.WRITE: "write",
    Scope.DELETE: "delete",
    Scope.WORK: "claim and settle jobs, which takes read and write, or read and delete",
    Scope.OWN: "change settings or routers, or drop, which takes owner or admin",
    Scope.ADMIN: "do what is about the whole server, which takes admin without prefixes",
}


class ApiKey(msgspec.Struct, frozen=True):
    digest: bytes
    scopes: Scope
    prefixes: tuple[str, ...]
    organisation: int = ORGANISATION_DEFAULT
    """Whose Kafka topics its `kafka:<topic>:<partition>` names are."""
    tenant: str = ""
    """What the ids of its instances begin with in the log of the machines: see
    `machines.operations`, which adds it; an answer or a refusal must not show it. Empty for a key
    without a tenant: of the first organisation, without prefixes."""

    @property
    def label(self) -> str:
        """For logs and limits: identifies a key without revealing it."""
        return self.digest.hex()[:8]

    def require(self, scope: Scope) -> None:
        missing = scope & ~self.scopes
        if missing:
            wanted = " and not ".join(_LACKS[each] for each in missing)
            raise HttpError("forbidden", f"this key may not {wanted}")

    def may_name(self, name: str) -> bool:
        return not self.prefixes or name.startswith(self.prefixes)

    def require_name(self, name: str) -> None:
        if not self.may_name(name):
            raise HttpError("forbidden", "this key may not use that name")


ANYONE: Final = ApiKey(b"", EVERYTHING, ())
ANONYMOUS: Final = ApiKey(b"", Scope.NONE, ("\0",))
"""May nothing, and no name begins like that."""


def parse_key(text: str) -> ApiKey:
    """secret[:scopes[:prefixes[:org=number]]]; a mistake names the part, never the secret.

    Prefixes may hold colons and end in numbers, as names do. `=` is in no name, so the last part
    cannot be taken for a prefix.
    """
    secret, _, rest = text.strip().partition(":")
    rest, organisation = _organisation(rest)
    scope_text, _, prefix_text = rest.partition(":")
    if len(secret) < 8:
        raise RequestError("an API key needs a secret of at least 8 characters")
    scopes = parse_scopes(scope_text, "an API key")
    prefixes = tuple(filter(None, prefix_text.split("|")))
    if prefixes:
        scopes &= OWNER
    tenant = "" if organisation == ORGANISATION_DEFAULT else f"{_ORGANISATION}{organisation}:"
    if prefixes:
        tenant += prefixes[0] + ":"
    return ApiKey(_digest(secret.encode()), scopes, prefixes, organisation, tenant)


def parse_scopes(text: str, whose: str) -> Scope:
    """Scopes joined by +; none at all mean everything."""
    scopes = Scope.NONE
    for word in text.split("+") if text else ():
        if word not in _SCOPES:
            raise RequestError(
                f"{whose} has the unknown scope {word!r}; scopes are {', '.join(_SCOPES)}"
            )
        scopes |= _SCOPES[word]
    if Scope.READ in scopes and scopes & (Scope.WRITE | Scope.DELETE):
        scopes |= Scope.WORK
    return scopes or EVERYTHING


def _organisation(rest: str) -> tuple[str, int]:
    before, marker, number = rest.rpartition(_ORGANISATION)
    if not marker:
        return rest, ORGANISATION_DEFAULT
    if before and not before.endswith(":"):
        raise RequestError("an API key has prefixes that no name can have")
    if not number.isascii() or not number.isdigit() or not 1 <= int(number) <= INTEGER_MAX:
        raise RequestError("the organisation of an API key is a whole number, 1 or more")
    return before.rstrip(":"), int(number)


class KeyRing:
    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = [parse_key(text) for text in keys]

    def __len__(self) -> int:
        return len(self._keys)

    def by_place(self) -> list[ApiKey]:
        """Whoever may come, by the place that processes of one server call them by."""
        return [ANYONE, *self._keys]

    def place_of(self, key: ApiKey) -> int:
        """Of a key that was found here."""
        return self.by_place().index(key)

    def find(self, authorization: bytes | None) -> ApiKey:
        """The key of an Authorization header. Every key is compared, whichever matches."""
        if not self._keys:
            return ANYONE
        scheme, _, secret = (authorization or b"").partition(b" ")
        if scheme.lower() != b"bearer" or not secret:
            raise _unauthorized("a bearer key is needed")
        return self.find_secret(secret.strip())

    def find_secret(self, secret: bytes) -> ApiKey:
        if not self._keys:
            return ANYONE
        digest = _digest(secret)
        match: ApiKey | None = None
        for key in self._keys:
            if hmac.compare_digest(key.digest, digest):
                match = key
        if match is None:
            raise _unauthorized("this key is not known")
        return match


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()


def _unauthorized(message: str) -> HttpError:
    return HttpError("unauthorized", message, headers={"www-authenticate": "Bearer"})


def own_id(key: ApiKey, full: str) -> str:
    return full.removeprefix(key.tenant) if key.tenant else full


def own_error(key: ApiKey | None, error: HeadwaterError) -> HeadwaterError:
    """A refusal by the machines names the instance; for a tenant as it has called it."""
    if key is None or not key.tenant or not isinstance(error, MachineError):
        return error
    if key.tenant not in str(error):
        return error
    said = str(error).replace(key.tenant, "")
    return MachineError(error.code, said, details=error.detail)
