"""SASL: PLAIN and SCRAM-SHA-256. The user decides the organisation."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headwater.server.kafka.users import Principal, ScramError, ScramExchange, SignIn, Users
from headwater.wire.http_errors import HttpError
from headwater.wire.kafka.apis import ErrorCode

if TYPE_CHECKING:
    from headwater.server.kafka.endpoint import Call, KafkaEndpoint

_WRONG: Final = "the name or the password is wrong"


class SignInError(Exception):
    """Refused; the message is what the client may know."""


class PlainSignIn:
    def __init__(self, users: Users) -> None:
        self._users = users
        self.principal: Principal | None = None

    def step(self, message: bytes) -> bytes:
        parts = message.split(b"\0")
        if len(parts) != 3:
            raise SignInError("not a message of SASL PLAIN")
        identity, name, password = parts
        try:
            username = name.decode()
        except UnicodeDecodeError as error:
            raise SignInError(_WRONG) from error
        if identity not in (b"", name):
            raise SignInError("nobody may sign in for somebody else")
        self.principal = self._users.check_password(username, password)
        if self.principal is None:
            raise SignInError(_WRONG)
        return b""


class ScramSignIn:
    def __init__(self, users: Users) -> None:
        self._users = users
        self._exchange: ScramExchange | None = None
        self.principal: Principal | None = None

    def step(self, message: bytes) -> bytes:
        try:
            if self._exchange is None:
                self._exchange = ScramExchange(message)
                keys = self._users.scram_keys(self._exchange.name)
                return self._exchange.begin(keys, secrets.token_urlsafe(24))
            answer = self._exchange.finish(message)
        except ScramError as error:
            raise SignInError(str(error)) from error
        self.principal = self._users.principal(self._exchange.name)
        return answer


_SIGN_INS: Final[dict[str, Callable[[Users], SignIn]]] = {
    "PLAIN": PlainSignIn,
    "SCRAM-SHA-256": ScramSignIn,
}
MECHANISMS: Final = tuple(_SIGN_INS)


def handshake(endpoint: KafkaEndpoint, call: Call) -> None:
    connection = call.connection
    mechanisms = MECHANISMS if len(endpoint.users) else ()
    make = _SIGN_INS.get(call.values["mechanism"]) if mechanisms else None
    if make is None:
        code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
    elif connection.principal is not None or call.version == 0:
        # Version 0 goes on without frames, which no client of this decade does.
        code = ErrorCode.ILLEGAL_SASL_STATE
    else:
        code = ErrorCode.NONE
        connection.sign_in = make(endpoint.users)
    call.answer({"error_code": code, "mechanisms": mechanisms})


def authenticate(endpoint: KafkaEndpoint, call: Call) -> None:
    connection, sign_in = call.connection, call.connection.sign_in
    if sign_in is None:
        call.refuse(ErrorCode.ILLEGAL_SASL_STATE, "a handshake comes first")
        return
    try:
        answer = sign_in.step(call.values["auth_bytes"])
    except SignInError as error:
        endpoint.counters.sign_ins_refused += 1
        endpoint.hung_up(connection, f"signing in failed: {error}")
        call.refuse(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error))
        connection.drain()
        return
    if sign_in.principal is not None:
        try:
            connection.signed_in(sign_in.principal)
        except HttpError as error:
            endpoint.hung_up(connection, str(error))
            call.refuse(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error))
            connection.drain()
            return
        connection.sign_in = None
    call.answer({"error_code": ErrorCode.NONE, "auth_bytes": answer})
