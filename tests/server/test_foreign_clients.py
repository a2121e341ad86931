"""Clients nobody here wrote: curl, httpx, aiohttp, urllib; and TLS with a certificate we made."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import json
import shutil
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from websockets.sync.client import connect

from headwater.core.errors import HeadwaterError
from headwater.server.server import Server
from tests.server.running_server import RunningServer, running, settings

CURL = shutil.which("curl")
needs_curl = pytest.mark.skipif(CURL is None, reason="curl is not installed")


@pytest.fixture
def url(server: RunningServer) -> str:
    return f"http://127.0.0.1:{server.port}"


# -- httpx and aiohttp


def test_httpx_writes_reads_and_watches(url: str, topic: str) -> None:
    with httpx.Client(base_url=url) as client:
        for number in range(20):
            records = [{"data": {"n": number, "text": "é" * 400}}]
            answer = client.post(f"/v0/topics/{topic}", json={"records": records})
            assert answer.status_code == (201 if number == 0 else 200)
        found = client.post(f"/v0/topics/{topic}/diff", json={})
        assert found.headers["content-encoding"] == "gzip"
        assert [r["data"]["n"] for r in found.json()["records"]] == list(range(20))
        assert client.head(f"/v0/topics/{topic}").status_code == 200
        assert client.get("/docs").text.startswith("<!doctype html>")
        wid = client.post("/v0/watch", json={"topics": {topic: {}}}).json()["wid"]
        with client.stream("GET", f"/v0/watch/{wid}") as stream:
            lines = stream.iter_lines()
            assert next(line for line in lines if line) == "retry: 2000"
            data = next(line for line in lines if line.startswith("data: "))
            assert len(json.loads(data[6:])["records"]) == 20


def test_httpx_sends_bodies_in_chunks(url: str, topic: str) -> None:
    def pieces() -> Iterator[bytes]:
        yield b'{"records":['
        yield b",".join([b'{"data":1}'] * 100)
        yield b"]}"

    answer = httpx.post(f"{url}/v0/topics/{topic}", content=pieces())
    assert answer.json()["count"] == 100


def test_aiohttp_writes_in_parallel_and_follows(url: str, topic: str) -> None:
    async def talk() -> list[Any]:
        async with aiohttp.ClientSession(url) as session:

            async def write(number: int) -> None:
                body = {"records": [{"data": number}]}
                async with session.post(f"/v0/topics/{topic}", json=body) as answer:
                    assert answer.status in (200, 201)

            await write(-1)
            await asyncio.gather(*(write(number) for number in range(100)))
            async with session.ws_connect("/v0/ws") as socket:
                await socket.send_json({"op": "subscribe", "topic": topic})
                found: list[Any] = []
                while len(found) < 101:
                    message = await socket.receive_json(timeout=20)
                    found += message.get("records", [])
            async with session.post(f"/v0/topics/{topic}/diff", json={"wait_ms": 1}) as answer:
                assert (await answer.json())["head_seq"] == 101
            return [record["data"] for record in found]

    assert sorted(asyncio.run(talk())) == list(range(-1, 100))


def test_the_standard_library_can_speak_to_it(url: str, topic: str) -> None:
    body = json.dumps({"records": [{"data": 1}]}).encode()
    request = urllib.request.Request(
        f"{url}/v0/topics/{topic}", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert json.load(answer)["count"] == 1


# -- curl


def curl(*arguments: str) -> str:
    assert CURL is not None
    done = subprocess.run(
        [CURL, "--silent", "--show-error", "--max-time", "20", *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    return done.stdout


@needs_curl
def test_curl_writes_and_reads(url: str, topic: str) -> None:
    path = f"{url}/v0/topics/{topic}"
    body = '{"records":[{"data":"hello"}]}'
    typed = ("-H", "content-type: application/json", "-d", body)
    assert json.loads(curl(path, *typed))["count"] == 1
    assert json.loads(curl(path, *typed, "--http1.0"))["count"] == 1
    assert json.loads(curl(path, *typed, "--http2"))["count"] == 1
    found = json.loads(curl(f"{path}/diff", "-X", "POST", "--compressed"))
    assert [r["data"] for r in found["records"]] == ["hello"] * 3
    assert "HTTP/1.1 200 OK" in curl("-I", f"{url}/v0/health")
    assert curl(path, "-d", "x=1", "-w", "%{http_code}").endswith("415")


@needs_curl
def test_curl_sends_a_large_body_after_asking(url: str, topic: str, tmp_path: Path) -> None:
    body = tmp_path / "body.json"
    body.write_text(json.dumps({"records": [{"data": "x" * 900_000}] * 3}))
    answer = curl(
        f"{url}/v0/topics/{topic}", "-H", "content-type: application/json",
        "-H", "expect: 100-continue", "--data-binary", f"@{body}",
    )  # fmt: skip
    assert json.loads(answer)["count"] == 3


@needs_curl
def test_curl_follows_a_stream(url: str, topic: str) -> None:
    httpx.post(f"{url}/v0/topics/{topic}", json={"records": [{"data": 1}]})
    wid = httpx.post(f"{url}/v0/watch", json={"topics": {topic: {}}}).json()["wid"]
    assert CURL is not None
    process = subprocess.Popen(
        [CURL, "-sN", f"{url}/v0/watch/{wid}"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        seen = []
        for line in process.stdout:
            seen.append(line.strip())
            if line.startswith("event: caught-up"):
                break
        assert seen[0] == "retry: 2000"
        assert "event: record" in seen
    finally:
        process.kill()
        process.communicate()


# -- TLS


def certificate(directory: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    names: list[x509.GeneralName] = [
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    ]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate_path, key_path = directory / "certificate.pem", directory / "key.pem"
    certificate_path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate_path, key_path


def test_everything_works_over_tls_and_nothing_without(tmp_path: Path) -> None:
    certificate_path, key_path = certificate(tmp_path)
    chosen = settings(
        tls_certificate=str(certificate_path),
        tls_key=str(key_path),
        deadlines={"headers_s": 3.0, "drain_s": 2.0},
    )
    trust = ssl.create_default_context(cafile=str(certificate_path))
    with running(tmp_path / "data", chosen) as server:
        with server.talk(tls=trust) as http:
            assert http.write("t", "x" * 500_000).status == 201
            assert len(http.diff("t").json["records"][0]["data"]) == 500_000
            http.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\nxx")
            assert http.answer().status == 413
        address = f"https://127.0.0.1:{server.port}"
        with httpx.Client(verify=trust) as client:
            assert client.get(f"{address}/v0/ready").status_code == 200
        with connect(f"wss://127.0.0.1:{server.port}/v0/ws", ssl=trust) as socket:
            socket.send('{"op":"ping"}')
            assert "pong" in str(socket.recv(timeout=20))
        with server.talk() as plain:
            plain.send(b"GET /v0/health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"200 OK" not in plain.rest()
        with server.talk() as silent:
            assert silent.is_closed(), "a handshake that never comes is not waited for"
        with server.talk(tls=trust) as http:
            assert http.get("/v0/health").status == 200


def test_a_certificate_without_its_key_or_a_bad_one_is_refused(tmp_path: Path) -> None:
    certificate_path, _ = certificate(tmp_path)
    bad = tmp_path / "bad.pem"
    bad.write_text("not a key")

    async def start(**fields: str) -> None:
        await Server(tmp_path / "data", settings(**fields)).start()

    with pytest.raises(HeadwaterError, match="both"):
        asyncio.run(start(tls_certificate=str(certificate_path)))
    for key_path in (bad, tmp_path / "missing.pem"):
        with pytest.raises(HeadwaterError, match="cannot be used"):
            asyncio.run(start(tls_certificate=str(certificate_path), tls_key=str(key_path)))
