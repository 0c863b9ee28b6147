"""`kamebench tiny-checkpoint`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("tiny-checkpoint")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), metavar="DIR")
@click.option(
    "--oracle/--no-oracle",
    default=True,
    show_default=True,
    help="Four streams (KAME), or three (Moshi; what moshi.server loads).",
)
@click.option("--seed", type=int, default=3, show_default=True, help="Of the weights.")
@click.option(
    "--relocatable",
    is_flag=True,
    help="Name the codec's configuration relative to DIR, for a hub repository or a folder that moves. "
    "Without it the name is a file:// URL, which moshi.server needs to stay off the hub.",
)
def command(*, folder: Path, oracle: bool, seed: int, relocatable: bool) -> None:
    """Write a small random checkpoint in the public layout into DIR, which must be new or empty.

    It babbles, and serves to try out everything around the model without its weights.
    """
    import importlib.util

    from kamebench.errors import BadConfig, MissingExtra
    from kamebench.runtime.tiny import write_checkpoint

    if importlib.util.find_spec("moshi") is None:
        raise MissingExtra("tiny-checkpoint", "moshi")
    if folder.exists() and any(folder.iterdir()):
        raise BadConfig(f"{folder}: is not empty. Name a new folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_checkpoint(folder, oracle=oracle, relocatable=relocatable, seed=seed)
    except OSError as error:
        raise BadConfig(f"{folder}: cannot be written: {error.strerror}. Name another folder.") from None
    system = "kame" if oracle else "moshi"
    backend = " --backend local" if oracle else ""
    click.echo(
        f"{folder}: a tiny {'KAME' if oracle else 'Moshi'}. Try it: kamebench run --system {system}{backend} "
        f"--set weights={folder} --set dtype=fp32 --set device=cpu --pace lockstep --limit 1"
    )
