"""Checkpoints through the real hub client, from a stand-in of the hub on loopback."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("huggingface_hub")
CONFIG = {
    "dim": 8,
    "num_heads": 1,
    "num_layers": 1,
    "n_q": 2,
    "dep_q": 1,
    "card": 4,
    "text_card": 4,
    "context": 3,
    "delays": [0, 0, 0],
    "moshi_name": "model.safetensors",
}
FILES = {
    ("team/tiny", "main"): {"config.json": json.dumps(CONFIG).encode(), "model.safetensors": b"new"},
    ("team/tiny", "v1"): {
        "config.json": json.dumps(CONFIG | {"dim": 16}).encode(),
        "model.safetensors": b"old",
    },
    ("team/bare", "main"): {"model.safetensors": b"first"},
}
# What is asked of `read` in a process of its own, as the client takes its address from the environment.
SCRIPT = """
import json, sys
from kamebench.errors import KamebenchError
from kamebench.runtime.checkpoint import read
try:
    found = read(sys.argv[1], sys.argv[2] or None)
    print(json.dumps([found.lm["dim"], found.needed("moshi_name").read_text()]))
except KamebenchError as error:
    print(json.dumps([type(error).__name__, str(error)]))
"""

# A whole conversation: the text tokens of some frames of noise.
TALK = """
import asyncio, json, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
from kamebench.runtime.voice import VoiceSettings, load
voice = load(VoiceSettings(sys.argv[1], sys.argv[2] or None, "fp32", "cpu"), 1, "from-text")
async def talk():
    slot = voice.engine.open(1)
    noise = np.random.default_rng(0).standard_normal((12, 1920)).astype(np.float32) * 0.3
    found = [await slot.step(frame) for frame in noise]
    await slot.aclose()
    return [step.text_token for step in found]
print(json.dumps([asyncio.run(talk()), voice.describe()["oracle_from_text_embedding"]]))
voice.engine.close()
"""


class Hub(BaseHTTPRequestHandler):
    """`/{owner}/{name}/resolve/{revision}/{file}`, as much as the client asks for."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        parts = self.path.strip("/").split("/")
        name, revision, file = "/".join(parts[:2]), parts[3], "/".join(parts[4:])
        known = FILES.get((name, revision))
        error = None
        if known is None:
            error = "RevisionNotFound" if (name, "main") in FILES else "RepoNotFound"
        elif file not in known:
            error = "EntryNotFound"
        content = b"" if error or known is None else known[file]
        self.send_response(404 if error else 200)
        if error:
            self.send_header("X-Error-Code", error)
        self.send_header("X-Repo-Commit", hashlib.sha1(f"{name}@{revision}".encode()).hexdigest())
        self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        """Keep quiet."""


@pytest.fixture
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def ask(hub: str, home: Path, source: str, revision: str = "", script: str = SCRIPT) -> list[object]:
    env = {
        **{key: value for key, value in os.environ.items() if "proxy" not in key.lower()},
        "HF_ENDPOINT": hub,
        "HF_HOME": str(home),
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", script, source, revision],
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    found: list[object] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_files_come_from_the_revision_asked_for(hub: str, tmp_path: Path) -> None:
    assert ask(hub, tmp_path, "team/tiny") == [8, "new"]
    assert ask(hub, tmp_path, "team/tiny", "v1") == [16, "old"]


@pytest.mark.parametrize(
    ("source", "revision", "error", "says"),
    [
        ("team/tiny", "v9", "BadCheckpoint", "team/tiny@v9: the repository has no such revision"),
        ("team/none", "", "BadCheckpoint", "team/none: no such repository"),
    ],
)
def test_what_the_hub_lacks_is_named(
    hub: str, tmp_path: Path, source: str, revision: str, error: str, says: str
) -> None:
    kind, message = ask(hub, tmp_path, source, revision)
    assert kind == error
    assert says in str(message)


def test_a_repository_without_a_config_is_the_first_moshi(hub: str, tmp_path: Path) -> None:
    pytest.importorskip("moshi")
    assert ask(hub, tmp_path, "team/bare") == [4096, "first"]


def test_no_hub_is_a_fault_of_the_network(tmp_path: Path) -> None:
    kind, message = ask("http://127.0.0.1:9", tmp_path, "team/tiny")
    assert kind == "AssetFault"
    assert "config.json cannot be fetched" in str(message)


@pytest.mark.slow
def test_a_whole_checkpoint_from_the_hub_speaks_as_from_its_folder(
    hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("moshi")
    from kamebench.runtime.tiny import write_checkpoint

    spoken: dict[str, list[object]] = {}
    for revision, seed in (("main", 3), ("v2", 4)):
        folder = tmp_path / revision
        folder.mkdir()
        write_checkpoint(folder, oracle=True, relocatable=True, seed=seed)
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
        monkeypatch.setitem(FILES, ("team/kame", revision), files)
        spoken[revision] = ask(hub, tmp_path / "home", str(folder), script=TALK)
        # Its own name for the newest revision is the branch.
        asked = "" if revision == "main" else revision
        assert ask(hub, tmp_path / "home", "team/kame", asked, TALK) == spoken[revision]
    assert spoken["main"] != spoken["v2"]
    assert spoken["main"][1] is False
