"""Clients that show a key, and clients that want to know whom they talk to."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import headwater
from headwater.client import ForbiddenError, Retry, UnauthorizedError
from headwater.core.errors import InvalidRequestError
from headwater.core.records import Record
from tests.rig.server_process import ServerProcess

pytestmark = pytest.mark.e2e

ONCE = Retry(give_up_after_s=0.0)


def make_certificate(directory: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    begin = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + datetime.timedelta(days=36_500))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = directory / "certificate.pem", directory / "key.pem"
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate_file, key_file


def test_a_client_trusts_the_certificate_it_was_given_and_no_other(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    environment = {"HEADWATER_TLS_CERTIFICATE": str(certificate), "HEADWATER_TLS_KEY": str(key)}
    with ServerProcess(tmp_path / "data", **environment) as server:
        url = f"https://127.0.0.1:{server.port}"
        with headwater.Client(url, ca_file=str(certificate)) as client:
            client.append("a", {"data": 1})
            found = next(client.watch("a"))
            assert isinstance(found, Record)
        with (
            headwater.Client(url, retry=ONCE) as stranger,
            pytest.raises(InvalidRequestError, match="cannot be trusted"),
        ):
            stranger.topics()


def test_a_key_that_may_not_is_told_apart_from_one_that_is_not_known(tmp_path: Path) -> None:
    keys = "writer-key:write,reader-key:read:open."
    with ServerProcess(tmp_path / "data", HEADWATER_API_KEYS=keys) as server:
        with headwater.Client(server.url, token="writer-key") as writer:
            writer.append("open.a", {"data": 1})
            writer.append("closed.a", {"data": 1})
            with pytest.raises(ForbiddenError):
                writer.diff("open.a")
            with pytest.raises(ForbiddenError):
                writer.create("open.b")
            writer.append("open.b", {"data": 1})
        with headwater.Client(server.url, token="reader-key") as reader:
            assert [state.topic for state in reader.topics()] == ["open.a", "open.b"]
            with pytest.raises(ForbiddenError):
                reader.state("closed.a")
            with pytest.raises(ForbiddenError):
                reader.append("open.a", {"data": 2})
        with (
            headwater.Client(server.url, token="stranger") as stranger,
            pytest.raises(UnauthorizedError),
        ):
            stranger.topics()


@pytest.mark.parametrize(
    ("url", "token"),
    [
        ("127.0.0.1:4000", None),
        ("ftp://127.0.0.1", None),
        ("http://user:password@127.0.0.1", None),
        ("http://127.0.0.1", "two\nlines"),
        ("http://127.0.0.1", ""),
    ],
)
def test_an_address_or_token_that_cannot_be_is_refused_at_once(url: str, token: str | None) -> None:
    with pytest.raises(InvalidRequestError):
        headwater.Client(url, token=token)
