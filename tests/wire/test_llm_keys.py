"""A planted key is looked for in everything that is written, logged, raised or shown."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from kamebench.errors import BackendFault, BadConfig, KamebenchError
from kamebench.llm import open_backend
from kamebench.llm.base import ChatRequest, Message
from kamebench.llm.setup import find_key, read_key
from tests.wire.llm_servers import DIALECTS, Dialect, Reply, wire_server

KEY = "sk-planted-4f1c9a77d2"
REQUEST = ChatRequest((Message("user", "Hello?"),))


@pytest.fixture
def everything_logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """All loggers at their most talkative."""
    names = ["", *logging.Logger.manager.loggerDict]
    before = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.DEBUG)
    with caplog.at_level(logging.DEBUG):
        yield caplog
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def shown(error: BaseException) -> str:
    """All that any traceback could show of an exception and what it came from, local variables included."""
    parts: list[str] = []
    while error is not None:
        frames = error.__traceback__.tb_next if error.__traceback__ else None  # not the test's own
        formatted = traceback.TracebackException(type(error), error, frames, capture_locals=True)
        parts += [*formatted.format(), repr(error), str(error), repr(vars(error))]
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return "".join(parts)


def misbehaviours(dialect: Dialect) -> dict[str, Reply]:
    """Answers that repeat the key, and failures at every point."""
    said = f"Incorrect key: {KEY}"
    json_type = "application/json"
    return {
        "echoed": Reply([dialect.error(401, said)], 401, content_type=json_type),
        "echoed unformed": Reply([said.encode()], 500, content_type="text/plain"),
        "server": Reply([dialect.error(500)], 500, content_type=json_type),
        "reset": Reply(["reset"], status=0),
        "garbage": Reply([dialect.opening(), f"event: error\ndata: {{{said}\n\n".encode()]),
        "cut": Reply([dialect.opening(), dialect.text("So")]),
        "hang": Reply(["hang"], status=0),
    }


@pytest.mark.parametrize("provider", list(DIALECTS))
@pytest.mark.parametrize("from_file", [False, True])
async def test_a_key_is_never_shown(
    provider: str,
    from_file: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    everything_logged: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    dialect = DIALECTS[provider]
    if from_file:
        (tmp_path / "key").write_text(KEY + "\n")
        monkeypatch.setenv(f"{dialect.key_variable}_FILE", str(tmp_path / "key"))
    else:
        monkeypatch.setenv(dialect.key_variable, KEY)
    cassette = tmp_path / "cassette"
    seen: list[str] = []
    async with wire_server() as server:
        backend = open_backend(
            f"{provider}:{dialect.model}",
            url=server.url + dialect.base,
            record=cassette,
            first_token_s=0.3,
        )
        replies = misbehaviours(dialect)
        server.replies += [Reply(dialect.answer("Fine.")), *replies.values()]
        assert (await backend.complete(REQUEST)).text == "Fine."
        for name in replies:
            with pytest.raises(BackendFault) as raised:
                await backend.complete(REQUEST)
            seen.append(f"{name}: {shown(raised.value)}")
        seen += [repr(backend), str(vars(backend)), json.dumps(backend.describe())]
        seen += [json.dumps(backend.usage())]
        await backend.aclose()
    assert all(KEY in asked.headers[dialect.key_header] for asked in server.asked), "the key was never used"

    seen += [file.read_text() for file in cassette.iterdir()]
    assert len(list(cassette.iterdir())) == 1 + len(replies)
    seen += [everything_logged.text, *capfd.readouterr()]
    assert len(everything_logged.records) > 10, "nothing was logged: this would prove nothing"
    for text in seen:
        assert KEY not in text


async def test_openais_key_is_not_sent_to_other_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    async with wire_server() as server:
        server.replies.append(Reply(DIALECTS["openai-compatible"].answer("Fine.")))
        backend = open_backend("openai-compatible:llama3", url=f"{server.url}/v1")
        await backend.complete(REQUEST)
        await backend.aclose()
    assert KEY not in str(server.asked[0].headers)


async def test_a_key_in_an_address_is_not_shown() -> None:
    backend = open_backend(f"openai-compatible:m@http://me:{KEY}@127.0.0.1:9/v1")
    with pytest.raises(BackendFault) as raised:
        await backend.complete(REQUEST)
    await backend.aclose()
    assert KEY not in str(raised.value) + json.dumps(backend.describe()) + repr(backend)


def test_where_keys_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_key("SOME_KEY", "OTHER_KEY") is None
    monkeypatch.setenv("OTHER_KEY_FILE", str(tmp_path / "key"))
    with pytest.raises(BadConfig, match="OTHER_KEY_FILE"):
        find_key("SOME_KEY", "OTHER_KEY")
    (tmp_path / "key").write_text(" \n")
    with pytest.raises(BadConfig, match="empty"):
        find_key("SOME_KEY", "OTHER_KEY")
    (tmp_path / "key").write_text(f"{KEY}\n")
    key = read_key("Somebody", "SOME_KEY", "OTHER_KEY")
    assert key.get_secret_value() == KEY
    assert KEY not in f"{key} {key!r}"
    monkeypatch.setenv("SOME_KEY", "the first wins")
    assert read_key("Somebody", "SOME_KEY", "OTHER_KEY").get_secret_value() == "the first wins"
    with pytest.raises(KamebenchError, match="THIRD_KEY_FILE"):
        read_key("Somebody", "THIRD_KEY")
