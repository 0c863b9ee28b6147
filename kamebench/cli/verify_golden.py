"""`kamebench verify-golden`: parity with the reference implementation."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command(name="verify-golden")
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="DIR...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def command(folders: tuple[Path, ...], as_json: bool) -> None:
    """Replay golden cases through the KAME runtime, on the CPU.

    DIR is a case, or a folder of cases. Exit code 1 when a token differs, or a logit by more than 1e-4; 2
    when a case cannot be read.
    """
    import importlib.util
    import os

    from kamebench.errors import BadConfig, MissingExtra
    from kamebench.runtime.golden import find_cases, verify

    if importlib.util.find_spec("moshi") is None:
        raise MissingExtra("verify-golden", "moshi")
    os.environ.setdefault("NO_TORCH_COMPILE", "1")  # read when moshi is imported
    cases = [case for folder in folders for case in find_cases(folder)]
    if not cases:
        raise BadConfig(f"{', '.join(map(str, folders))}: no golden case. A case is a folder with case.json.")
    verdicts = []
    for case in cases:
        verdict = verify(case)
        verdicts.append(verdict)
        if not as_json:
            click.echo(verdict.line())
    if as_json:
        click.echo(json.dumps([verdict.as_json() for verdict in verdicts], indent=1))
    if not all(verdict.exact for verdict in verdicts):
        raise click.exceptions.Exit(1)
