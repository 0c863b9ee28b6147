"""`kamebench run`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kamebench.cli.dollars import Dollars


@click.command("run")
@click.option(
    "--system", "system_name", default="cascade", show_default=True, help="A system file's name or path."
)
@click.option("--backend", help="Language model; default the system's own.")
@click.option("--backend-url", help="Address of an openai-compatible server.")
@click.option(
    "--task", "task_name", default="spoken-basics", show_default=True, help="A task's name or folder."
)
@click.option("--judge", help="facts, none, or a model's name; default facts where the task has facts.")
@click.option(
    "--limit", type=click.IntRange(min=1), help="Ask at most this many questions, categories in turn."
)
@click.option("--judge-url", help="Address of an openai-compatible judge.")
@click.option(
    "--references", type=click.Choice(["gold", "corrected", "original"]), help="Set of reference answers."
)
@click.option("--judge-repeats", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--preset", type=click.Choice(["published"]), help="Judge as the published harness does.")
@click.option("--category", "categories", multiple=True, help="Only this category; may be repeated.")
@click.option(
    "--pace", type=click.Choice(["realtime", "virtual", "lockstep"]), help="Default: the fastest honest one."
)
@click.option(
    "--sessions", type=click.IntRange(min=1), default=1, show_default=True, help="Conversations side by side."
)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--voice", default="piper:joe", show_default=True, help="Who speaks the questions.")
@click.option(
    "--recogniser", default="faster-whisper:tiny.en", show_default=True, help="What transcribes the answers."
)
@click.option("--no-wait", is_flag=True, help="Play a turn even while the system is still speaking.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set an option of the system.")
@click.option(
    "--record", "record_to", type=click.Path(path_type=Path), help="Record the back-end's answers here."
)
@click.option(
    "--max-cost", type=Dollars(), metavar="USD", help="US dollars; the run stops cleanly and can be resumed."
)
@click.option("--dry-run", is_flag=True, help="Estimate requests and cost; ask nothing.")
@click.option(
    "--results", type=click.Path(path_type=Path, file_okay=False), default=Path("results"), show_default=True
)
@click.option(
    "--root",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder that holds tasks/ and systems/.",
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Go on with a run that was stopped.",
)
@click.option("--retry-faults", is_flag=True, help="With --resume: play faulted questions again.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def command(**options: Any) -> None:
    """Run a system on a task, measure, transcribe and score it.

    Without options: the embedded cascade on the task spoken-basics.
    """
    from kamebench.cli.running import RunOptions, dry_run, resume_run, start_run

    _refuse_with_resume(options)
    resume, retry_faults, dry = (options.pop(name) for name in ("resume", "retry_faults", "dry_run"))
    chosen = RunOptions(**options)
    if resume is not None:
        resume_run(resume, chosen, retry_faults)
    elif dry:
        dry_run(chosen)
    else:
        start_run(chosen)


WITH_RESUME = ("resume", "retry_faults", "max_cost", "root", "as_json")


def _refuse_with_resume(options: dict[str, Any]) -> None:
    """A stopped run goes on as it was begun: an option that would change it is an error, not ignored."""
    from kamebench.errors import BadConfig

    context = click.get_current_context()
    given = [
        parameter.opts[0]
        for parameter in context.command.params
        if context.get_parameter_source(parameter.name or "") is click.core.ParameterSource.COMMANDLINE
        and parameter.name not in WITH_RESUME
    ]
    if options["resume"] is not None and given:
        raise BadConfig(
            f"--resume goes on with the run as it was begun: leave {', '.join(given)} out, or start a new "
            "run. With it go --retry-faults, --max-cost, --root and --json."
        )
    if options["resume"] is None and options["retry_faults"]:
        raise BadConfig("--retry-faults needs the run: --resume RUN --retry-faults.")
