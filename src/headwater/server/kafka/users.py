"""SASL users: users with a password, an organisation and scopes; and SCRAM-SHA-256 (RFC 5802 and
7677), the server's half. Pure: the nonce and the salt are given.

Neither side sends the password; what is kept of it cannot be used to sign in. A client that names
an unknown user goes through the same exchange and is refused at the end, so that it cannot find out
names.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from headwater.core.errors import RequestError
from headwater.server.access.keys import EVERYTHING, Scope, parse_scopes

ITERATIONS: Final = 4096
_CHANNELS: Final = (b"n", b"y")
"""No channel binding, either because the client cannot or because it thinks we cannot."""
FIRST_ORGANISATION: Final = 1
ORGANISATION_MAX: Final = 2**64 - 1
_PASSWORD_CHARACTERS_MIN: Final = 8
_SALT_BYTES: Final = 16


class ScramError(Exception):
    """The exchange is not what it should be. The message never says whether the user exists."""


class ScramKeys(NamedTuple):
    """What the server keeps of a password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes


def scram_keys(password: str, salt: bytes) -> ScramKeys:
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, ITERATIONS)
    stored_key = hashlib.sha256(_mac(salted, b"Client Key")).digest()
    return ScramKeys(salt, stored_key, _mac(salted, b"Server Key"))


class ScramExchange:
    """One sign-in: `begin` with the first message, `finish` with the second."""

    def __init__(self, message: bytes) -> None:
        channel, identity, bare = _split_header(message)
        self._header = message[: len(message) - len(bare)]
        fields = _fields(bare)
        self.name = _plain_name(_field(fields, "n"))
        if channel not in _CHANNELS or identity not in ("", "a=" + _field(fields, "n")):
            raise ScramError("this form of SCRAM is not spoken here")
        self._client_nonce = _field(fields, "r")
        self._bare = bare
        self._first = b""
        self._keys: ScramKeys | None = None

    def begin(self, keys: ScramKeys, nonce: str) -> bytes:
        """What to answer: the joined nonce, the salt, the iterations."""
        self._keys = keys
        self._nonce = self._client_nonce + nonce
        salt = base64.b64encode(keys.salt).decode()
        self._first = f"r={self._nonce},s={salt},i={ITERATIONS}".encode()
        return self._first

    def finish(self, message: bytes) -> bytes:
        """Check the proof; what to answer proves that we know the password too."""
        assert self._keys is not None
        without_proof, _, proof_text = message.rpartition(b",p=")
        fields = _fields(without_proof)
        try:
            proof = base64.b64decode(proof_text, validate=True)
            header = base64.b64decode(_field(fields, "c"), validate=True)
        except binascii.Error as error:
            raise ScramError("a part of the proof is not base64") from error
        if header != self._header or _field(fields, "r") != self._nonce:
            raise ScramError("the proof is for another exchange")
        signed = b",".join((self._bare, self._first, without_proof))
        signature = _mac(self._keys.stored_key, signed)
        if len(proof) != len(signature):
            raise ScramError("the name or the password is wrong")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.sha256(client_key).digest(), self._keys.stored_key):
            raise ScramError("the name or the password is wrong")
        return b"v=" + base64.b64encode(_mac(self._keys.server_key, signed))


def _mac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")


def _split_header(message: bytes) -> tuple[bytes, str, bytes]:
    parts = message.split(b",", 2)
    if len(parts) != 3:
        raise ScramError("the first message of SCRAM has no header")
    try:
        return parts[0], parts[1].decode(), parts[2]
    except UnicodeDecodeError as error:
        raise ScramError("the first message of SCRAM is not text") from error


def _fields(message: bytes) -> dict[str, str]:
    try:
        text = message.decode()
    except UnicodeDecodeError as error:
        raise ScramError("a message of SCRAM is not text") from error
    attributes: dict[str, str] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        attributes.setdefault(name, value)
    if "m" in attributes:
        raise ScramError("an extension of SCRAM is required that is not known here")
    return attributes


def _field(fields: dict[str, str], name: str) -> str:
    value = fields.get(name, "")
    if not value:
        raise ScramError(f"a message of SCRAM lacks its {name}")
    return value


def _plain_name(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


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
