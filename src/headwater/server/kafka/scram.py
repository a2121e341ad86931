"""SCRAM-SHA-256 (RFC 5802 and 7677), the server's half. Pure: the nonce and the salt are given.

Neither side sends the password; what is kept of it cannot be used to sign in. A client that names
an unknown user goes through the same exchange and is refused at the end, so that it cannot find out
names.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final, NamedTuple

ITERATIONS: Final = 4096
_CHANNELS: Final = (b"n", b"y")
"""No channel binding, either because the client cannot or because it thinks we cannot."""


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
