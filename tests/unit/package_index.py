"""A package index on loopback that pip really downloads from, with faults on demand."""

from __future__ import annotations

import hashlib
import io
import re
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kamebench.assets import Asset, AssetFile, Wheel


def wheel_of(name: str, members: dict[str, bytes], version: str = "1.0") -> tuple[Wheel, bytes]:
    """A wheel with these members, stored without compression, and its description."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for path, content in members.items():
            archive.writestr(path, content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    content = data.getvalue()
    return Wheel(name=name, version=version, size=len(content), sha256=sha256(content)), content


def asset_of(
    wheels: tuple[Wheel, ...], files: dict[str, tuple[tuple[str, ...], bytes]], **more: Any
) -> Asset:
    """An asset whose files are made of these members and have this content."""
    listed = tuple(
        AssetFile(name=name, members=members, sha256=sha256(content))
        for name, (members, content) in files.items()
    )
    return Asset(about="made for a test", licence="none", wheels=wheels, files=listed, **more)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Index:
    """What is served, what was asked for, and what goes wrong: `breaks` downloads stop half-way."""

    url: str = ""
    wheels: dict[str, bytes] = field(default_factory=dict[str, bytes])
    breaks: int = 0
    downloads: list[str | None] = field(default_factory=list[str | None])  # the Range asked for, each time

    def add(self, wheel: Wheel, content: bytes) -> None:
        self.wheels[f"{wheel.name.replace('-', '_')}-{wheel.version}-py3-none-any.whl"] = content


@contextmanager
def serve() -> Iterator[Index]:
    index = Index()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rstrip("/").rsplit("/", 1)[-1]
            if self.path.startswith("/simple/"):
                links = "".join(
                    f'<a href="/files/{wheel}">{wheel}</a>'
                    for wheel in index.wheels
                    if wheel.startswith(name.replace("-", "_") + "-")
                )
                self._send(f"<!DOCTYPE html><html><body>{links}</body></html>".encode(), "text/html")
            else:
                self._wheel(index.wheels[name])

        def _wheel(self, content: bytes) -> None:
            asked = self.headers.get("Range")
            index.downloads.append(asked)
            start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked else 0  # type: ignore[index]
            self.send_response(206 if asked else 200)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("ETag", '"one"')
            self.send_header("Accept-Ranges", "bytes")
            if asked:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            part = content[start:]
            if index.breaks > 0:
                index.breaks -= 1
                part = part[: len(part) // 2]
                self.close_connection = True
            self.wfile.write(part)

        def _send(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the base class's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    index.url = f"http://127.0.0.1:{server.server_port}/simple"
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
