"""Users of the Kafka listener, and SCRAM against the example in its own specification."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from headwater.core.errors import RequestError
from headwater.server.access.keys import EVERYTHING, Scope
from headwater.server.kafka.users import ScramError, ScramExchange, Users, parse_user, scram_keys

FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def begun(password: str = "pencil", first: bytes = FIRST) -> ScramExchange:
    exchange = ScramExchange(first)
    exchange.begin(scram_keys(password, SALT), NONCE)
    return exchange


def test_the_example_of_the_specification_is_spoken() -> None:
    exchange = ScramExchange(FIRST)
    assert exchange.name == "user"
    assert exchange.begin(scram_keys("pencil", SALT), NONCE) == SERVER_FIRST
    assert exchange.finish(FINAL) == SERVER_FINAL


def test_another_password_does_not_prove_anything() -> None:
    with pytest.raises(ScramError, match="wrong"):
        begun("pencils").finish(FINAL)


@pytest.mark.parametrize(
    "final",
    [
        FINAL.replace(b"%hv", b"%hw"),
        FINAL.replace(b"c=biws", b"c=eSws"),
        FINAL.replace(b"p=dHz", b"p=dHy"),
        FINAL.replace(b"p=dHz", b"p=!!"),
        FINAL.rpartition(b",")[0],
        b"",
        b"\xff,p=",
        b"c=biws,p=",
    ],
)
def test_a_proof_that_was_changed_is_refused(final: bytes) -> None:
    with pytest.raises(ScramError):
        begun().finish(final)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"n,,n=user",
        b"n,,n=,r=x",
        b"p=tls-unique,,n=user,r=x",
        b"n,a=other,n=user,r=x",
        b"n,,m=ext,n=user,r=x",
        b"n,,n=\xff,r=x",
        b"\xff",
    ],
)
def test_a_first_message_that_is_none_is_refused(first: bytes) -> None:
    with pytest.raises(ScramError):
        ScramExchange(first)


def test_escaped_names_are_read() -> None:
    assert ScramExchange(b"n,,n=a=2Cb=3Dc,r=x").name == "a,b=c"


@pytest.mark.parametrize(
    ("text", "organisation", "scopes"),
    [
        ("ann:long-enough", 1, EVERYTHING),
        ("ann:long-enough:7", 7, EVERYTHING),
        ("ann:long-enough:7:read", 7, Scope.READ),
        ("ann:long-enough::read+write", 1, Scope.READ | Scope.WRITE | Scope.WORK),
        ("ann:long-enough:2:admin", 2, EVERYTHING),
    ],
)
def test_a_user_has_an_organisation_and_scopes(text: str, organisation: int, scopes: Scope) -> None:
    principal = parse_user(text).principal
    assert (principal.organisation, principal.scopes) == (organisation, scopes)


@pytest.mark.parametrize(
    "text",
    [
        "ann",
        "ann:short",
        ":long-enough",
        "ann:long-enough:0",
        "ann:long-enough:x",
        "ann:long-enough:18446744073709551616",
        "ann:long-enough:1:everything",
    ],
)
def test_a_mistake_in_a_user_is_told_without_the_password(text: str) -> None:
    with pytest.raises(RequestError) as refused:
        parse_user(text)
    assert "long-enough" not in str(refused.value)


def test_a_password_opens_only_its_own_name() -> None:
    users = Users(["ann:anns-password", "bob:bobs-password:2"])
    found = users.check_password("bob", b"bobs-password")
    assert found is not None
    assert found.organisation == 2
    assert users.check_password("ann", b"bobs-password") is None
    assert users.check_password("eve", b"bobs-password") is None
    assert users.check_password("eve", b"") is None


def test_two_users_of_one_name_are_refused() -> None:
    with pytest.raises(RequestError, match="two Kafka users"):
        Users(["ann:anns-password", "ann:another-one"])


def test_a_name_that_is_not_known_cannot_be_told_by_its_salt() -> None:
    users = Users(["ann:anns-password"])
    assert users.scram_keys("eve").salt == users.scram_keys("eve").salt
    assert users.scram_keys("eve").salt != users.scram_keys("eva").salt
    assert len(users.scram_keys("eve").salt) == len(users.scram_keys("ann").salt)


def proof_for(without_proof: bytes) -> bytes:
    """What somebody who knows the password would send."""
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", SALT, 4096)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signed = b",".join((FIRST.removeprefix(b"n,,"), SERVER_FIRST, without_proof))
    signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return without_proof + b",p=" + base64.b64encode(proof)


def test_a_right_proof_for_another_exchange_is_refused() -> None:
    without_proof = FINAL.rpartition(b",p=")[0]
    assert begun().finish(proof_for(without_proof)) == SERVER_FINAL
    for changed in (
        without_proof.replace(b"%hvY", b"%hvX"),
        without_proof.replace(b"c=biws", b"c=eSws"),
    ):
        with pytest.raises(ScramError, match="another exchange"):
            begun().finish(proof_for(changed))
