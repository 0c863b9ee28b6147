"""The command line: argument parsing only. Each command lives in a module of its own, imported when named."""

from __future__ import annotations

import importlib
import sys

import click

from kamebench import __version__

COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("demo", "Benchmark the embedded cascade and open the report."),
    "run": ("run", "Run a system on a task, measure, transcribe and score it."),
    "list": ("listing", "List systems, tasks, back-ends, judges or runs."),
    "doctor": ("doctor", "Say what is installed, fetched and missing."),
    "fetch": ("fetch", "Fetch weights and data, checked by hash."),
    "synth": ("synth", "Speak a task's questions into the audio cache."),
    "measure": ("measure", "Measure onset latency in stereo recordings or a stored run."),
    "score": ("score", "Score a stored run again, without running the system."),
    "report": ("report", "Build the HTML report from stored runs."),
    "compare": ("compare", "Compare runs, paired by question and turn."),
    "gate": ("gate", "Pass, regression or inconclusive, against a baseline."),
    "baseline": ("baseline", "Keep and show baselines for the gate."),
    "power": ("power", "How many questions a margin needs."),
    "history": ("history", "All runs of a system over time."),
    "judge-check": ("judge_check", "Ask a judge to score answers whose quality is known."),
    "verify-golden": ("verify_golden", "Replay golden cases through the KAME runtime."),
    "tiny-checkpoint": ("tiny_checkpoint", "Write a small random checkpoint to try Moshi and KAME with."),
}


class LazyGroup(click.Group):
    """A group whose commands are `kamebench.cli.<module>:command`, imported only when invoked."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"kamebench.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from kamebench.errors import UnknownName

        if args and args[0] not in COMMANDS:
            raise UnknownName("command", args[0], COMMANDS)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kamebench")
def group() -> None:
    """Score and latency of speech-to-speech systems, measured the same way for all of them."""


def main() -> None:
    """Run the command line; errors become one clear line and an exit code (2 yours, 3 the world's)."""
    from kamebench.errors import KamebenchError

    try:
        code = group.main(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)  # click hands back what `ctx.exit(code)` was given
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.Abort:
        click.echo(
            "Interrupted. A run that had begun is kept: 'kamebench list runs' names it (with your "
            "--results), 'kamebench run --resume RUN' goes on with it.",
            err=True,
        )
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except KamebenchError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        if error.filename is None:
            raise
        click.echo(f"Error: {error.filename}: {error.strerror}. Mend it, or name another path.", err=True)
        sys.exit(2)
