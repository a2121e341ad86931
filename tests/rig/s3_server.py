"""A real S3 server in a process of its own."""

from __future__ import annotations

import importlib
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# The port is chosen by the kernel and told on the first line.
SERVER = """
import logging
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
logging.getLogger("werkzeug").setLevel(logging.ERROR)
app = DomainDispatcherApplication(create_backend_app)
server = make_server("127.0.0.1", 0, app, threaded=True)
print(server.server_port, flush=True)
server.serve_forever()
"""
START_TIMEOUT_S = 60


@contextmanager
def s3_server() -> Iterator[str]:
    """`host:port` of a running server."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], START_TIMEOUT_S)
        assert ready, "the S3 server did not start"
        yield f"127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def url_of(server: str, bucket: str, prefix: str = "/cold") -> str:
    return (
        f"s3://key:secret@{bucket}{prefix}?scheme=http&region=us-east-1&endpoint_override={server}"
    )


def make_bucket(server: str, bucket: str) -> None:
    file_systems: Any = importlib.import_module("pyarrow.fs")
    files = file_systems.S3FileSystem(
        access_key="key",
        secret_key="secret",
        endpoint_override=server,
        scheme="http",
        region="us-east-1",
        allow_bucket_creation=True,
    )
    files.create_dir(bucket)
