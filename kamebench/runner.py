"""One run: every question of a task played to a system, then measured, transcribed, scored and sealed.

What is recorded is never thrown away: a killed run goes on with `resume`, and a question that is played again
keeps its earlier attempt beside it.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import shutil
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kamebench import __version__, assets, environment, store
from kamebench.asr import open_recogniser
from kamebench.audio import FRAME_NS
from kamebench.clock import NS_PER_S
from kamebench.errors import BadRun, KamebenchError
from kamebench.judge import score_run
from kamebench.judge.ablations import ablate, has_oracle
from kamebench.judge.asking import Asker
from kamebench.llm.base import Backend, TurnContext
from kamebench.llm.cost import CostLimit
from kamebench.measure import measure_run
from kamebench.plan import Opened, RunPlan, chosen_questions, open_plan, primary_score
from kamebench.progress import Progress
from kamebench.records import UNCOUNTED, Manifest, SessionRecord
from kamebench.session import Playing, Recorded, Timing, TurnInput, record
from kamebench.speech import synthesise
from kamebench.speech.base import SpeechEngine
from kamebench.systems.base import Capabilities, System
from kamebench.tasks import Question, Task, load_task
from kamebench.threads import call_in_thread
from kamebench.transcribe import transcribe_run
from kamebench.vad import open_streaming_detector

END_POINTER = "webrtc"
ROLES = {"local": "floor", "reference": "topline"}


async def start(plan: RunPlan, results: Path, root: Path | None, progress: Progress) -> store.Run:
    """Begin a new run under `results` and bring it to its end.

    Raises:
        UserError: the plan cannot be carried out. WorldFault: the system did not start.
    """
    task = load_task(plan.task, root)
    opened = open_plan(plan)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(opened.aclose)
        await _start_system(opened, task, progress)  # first: a key or an extra may be absent
        audio = await _spoken_hashes(opened.plan, task, opened.voice, progress)
        run_id = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
        folder = results / plan.system.name / f"{task.name}@{task.version}" / run_id
        stack.enter_context(store.only_writer(folder))
        store.write_record(folder / store.MANIFEST, _manifest(opened.plan, task, run_id, audio))
        try:
            return await _carry_out(opened, task, folder, progress)
        except KamebenchError:
            if not (folder / "sessions").exists():  # it never began: nothing to resume
                shutil.rmtree(folder)
            raise


async def resume(
    folder: Path,
    root: Path | None,
    progress: Progress,
    *,
    retry_faults: bool = False,
    max_cost: float | None = None,
) -> store.Run:
    """Take up a run that was stopped; with `retry_faults` play faulted questions again as a new attempt.

    Raises:
        BadRun: it is complete, was edited, or the task has changed since.
    """
    with store.only_writer(folder):
        return await _resume(store.open_run(folder), root, progress, retry_faults, max_cost)


async def _resume(
    run: store.Run, root: Path | None, progress: Progress, retry_faults: bool, max_cost: float | None
) -> store.Run:
    folder, manifest = run.path, run.manifest
    faulted = [question for question, session in run.sessions.items() if session.fault is not None]
    if manifest.status == "complete" and not (retry_faults and faulted):
        raise BadRun(
            f"{folder}: the run is complete and none of its questions faulted. There is nothing to play."
            if not faulted
            else f"{folder}: the run is complete. Use --retry-faults to play its faulted questions again."
        )
    plan = RunPlan.model_validate(manifest.configuration["plan"])
    if max_cost is not None:
        plan = plan.model_copy(update={"max_cost": max_cost})
    task = load_task(plan.task, root)
    if task.sha256 != manifest.task_sha256:
        raise BadRun(
            f"{folder}: task '{task.name}' has changed since the run began "
            f"({manifest.task_sha256[:12]} -> {task.sha256[:12]}). Restore the task or start a new run."
        )
    if manifest.status == "complete":
        run.check()
    now = datetime.now(UTC).isoformat(timespec="seconds")
    changes = {
        "status": "running",
        "resumed": (*manifest.resumed, now),
        "files": {},
        "configuration": manifest.configuration | {"plan": plan.model_dump(mode="json")},
        "usage": manifest.usage | {UNCOUNTED: manifest.uncounted + 1},
    }
    opened = open_plan(plan, spent=manifest.cost_usd or 0.0)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(opened.aclose)
        if _left(plan, task, folder) or (retry_faults and faulted):
            await _start_system(opened, task, progress)
        store.write_record(folder / store.MANIFEST, manifest.model_copy(update=changes))
        if retry_faults:
            for question in faulted:
                _set_aside(folder, question, run.sessions[question].attempt)
        return await _carry_out(opened, task, folder, progress)


async def _start_system(opened: Opened, task: Task, progress: Progress) -> None:
    """Start everything, and refuse what could not be measured or judged once it was played."""
    open_recogniser(opened.plan.recogniser).close()
    if opened.plan.judge != "none":
        opened.plan.open_judge().check(task)
    progress.stage(f"Starting {opened.plan.system.name}", 1)
    if opened.backend is not None:
        await opened.backend.start()
    await opened.system.start()
    progress.step()


def _left(plan: RunPlan, task: Task, folder: Path) -> list[Question]:
    """The questions that have no finished session yet."""
    chosen = chosen_questions(plan, task)
    return [q for q in chosen if not (folder / "sessions" / q.id / store.SESSION).exists()]


def _manifest(plan: RunPlan, task: Task, run_id: str, audio: dict[str, str]) -> Manifest:
    assert plan.pace is not None
    commit, dirty = environment.git_state(Path.cwd())
    backend = plan.backend
    return Manifest(
        kamebench_version=__version__,
        run_id=run_id,
        status="running",
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        system=plan.system.name,
        backend=backend,
        label=f"{plan.system.name} + {backend}" if backend else plan.system.name,
        role=ROLES.get(backend or "", "system"),  # pyright: ignore[reportArgumentType]
        task=task.name,
        task_version=task.version,
        task_sha256=task.sha256,
        pace=plan.pace,
        seed=plan.seed,
        questions=plan.questions,
        n_turns=len(audio),
        usage={UNCOUNTED: 1},
        configuration={"plan": plan.model_dump(mode="json")},
        audio=audio,
        packages=environment.package_versions(),
        hardware=environment.hardware(),
        git_commit=commit,
        git_dirty=dirty,
        primary_score=primary_score(plan),
    )


async def _spoken_hashes(
    plan: RunPlan, task: Task, voice: SpeechEngine, progress: Progress
) -> dict[str, str]:
    """Speak every turn into the cache; 'question/turn' -> hash of its audio."""
    questions = chosen_questions(plan, task)
    progress.stage("Speaking the questions", sum(len(question.turns) for question in questions))
    found: dict[str, str] = {}
    for question in questions:
        for turn in await _inputs(task, question, voice):
            found[f"{question.id}/{turn.turn}"] = turn.spoken.audio_sha256
            progress.step(f"{question.id}/{turn.turn}")
    return found


async def _inputs(task: Task, question: Question, voice: SpeechEngine) -> list[TurnInput]:
    references = tuple(turn.reference for turn in question.turns)
    inputs: list[TurnInput] = []
    for number, turn in enumerate(question.turns, start=1):
        spoken, pcm = await call_in_thread(lambda text=turn.text: synthesise(text, voice))
        context = TurnContext(task.name, question.id, question.category, number, references)
        inputs.append(TurnInput(number, spoken, pcm, context))
    return inputs


async def _carry_out(opened: Opened, task: Task, folder: Path, progress: Progress) -> store.Run:
    """Play what was not played yet, then measure, transcribe, score and seal; the manifest comes last."""
    plan, began = opened.plan, time.perf_counter()
    unscored: KamebenchError | None = None
    try:
        await _record_all(opened, task, folder, progress)
        sessions_s = round(time.perf_counter() - began, 3)
        store.open_run(folder).check_sessions()
        await _derive(opened, task, folder, progress)
        try:
            await _score(opened, task, folder, progress)
        except KamebenchError as error:  # a judge that cannot be asked loses nothing that was recorded
            unscored = error
    except BaseException:
        manifest = store.open_run(folder).manifest
        counted = _counted(manifest, opened, time.perf_counter() - began)
        store.write_record(folder / store.MANIFEST, manifest.model_copy(update={"usage": counted}))
        raise
    described = {"system": opened.system.describe()}
    if opened.backend is not None:
        described["backend"] = opened.backend.describe()
    store.seal(
        folder,
        status="complete",
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        configuration={"plan": plan.model_dump(mode="json"), **described},
        usage=_counted(store.open_run(folder).manifest, opened, sessions_s),
        assets=assets.used(),
    )
    if unscored is not None:
        unscored.args = (f"{unscored} The run is kept; score it with: kamebench score {folder}",)
        raise unscored
    return store.open_run(folder)


def _counted(manifest: Manifest, opened: Opened, sessions_s: float) -> dict[str, Any]:
    """The usage of the whole run, now that this stretch has ended in order."""
    now: dict[str, Any] = {"sessions_s": round(sessions_s, 3), "system": opened.system.usage()}
    if opened.backend is not None:
        now["backend"] = opened.backend.usage()
    earlier = dict(manifest.usage)
    killed = earlier.pop(UNCOUNTED, 1) - 1
    return _summed(earlier, now) | ({UNCOUNTED: killed} if killed else {})


def _summed(earlier: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Usage of several stretches of a run: numbers add up, of anything else the later is kept."""
    found = {**earlier, **now}
    for name in earlier.keys() & now.keys():
        one, other = earlier[name], now[name]
        if name == "price":
            continue
        if other is None:
            found[name] = one
        elif isinstance(one, dict) and isinstance(other, dict):
            found[name] = _summed(one, other)
        elif _is_number(one) and _is_number(other):
            found[name] = one + other
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


async def _derive(opened: Opened, task: Task, folder: Path, progress: Progress) -> None:
    """Measures and transcripts of what was recorded."""
    plan = opened.plan
    await call_in_thread(lambda: measure_run(store.open_run(folder), progress))
    recogniser = open_recogniser(plan.recogniser)
    try:
        await call_in_thread(lambda: transcribe_run(store.open_run(folder), recogniser, progress))
    finally:
        recogniser.close()


async def _score(opened: Opened, task: Task, folder: Path, progress: Progress) -> None:
    """Verdicts on the spoken answers; a KAME run is taken apart as well."""
    plan, backend = opened.plan, opened.backend
    if plan.judge == "none":
        return
    judge = plan.open_judge()
    how: dict[str, Any] = {"references": plan.references, "repeats": plan.judge_repeats, "progress": progress}
    try:
        run = store.open_run(folder)
        await score_run(run, judge, task=task, **how)
        if backend is not None and has_oracle(run):
            await ablate(store.open_run(folder), judge, task=task, backend=Asker(lambda: backend), **how)
    finally:
        await judge.aclose()


async def _record_all(opened: Opened, task: Task, folder: Path, progress: Progress) -> None:
    """Play every question that has no finished session yet."""
    plan, system = opened.plan, opened.system
    left = _left(plan, task, folder)
    if not left:
        return
    progress.stage(f"Talking to {plan.system.name}", len(left))
    free = asyncio.Semaphore(plan.sessions)
    timing = _timing(plan, system.capabilities)

    stopped: list[CostLimit] = []

    async def one(place: int, question: Question) -> None:
        async with free:
            if stopped or _too_dear(opened.backend, stopped):
                return
            # Side by side, sessions share the cores best when their frames are not all due at once.
            await asyncio.sleep(FRAME_NS / NS_PER_S * (place % plan.sessions) / plan.sessions)
            turns = await _inputs(task, question, opened.voice)
            how = Playing(plan.pace or "realtime", _seed(plan.seed, question.id), timing)
            result = await _record_question(folder, question, system, turns, how)
            faulted = f" fault: {result.fault.party}: {result.fault.kind}" if result.fault else ""
            progress.step(f"{question.id}{faulted}")

    try:
        async with asyncio.TaskGroup() as group:
            for place, question in enumerate(left):
                group.create_task(one(place, question))
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    if stopped:
        raise CostLimit(f"{stopped[0]} Go on with: kamebench run --resume {folder} --max-cost DOLLARS")


def _too_dear(backend: Backend | None, stopped: list[CostLimit]) -> bool:
    """Whether the limit of cost is reached; conversations that run already are played to their end."""
    try:
        if backend is not None:
            backend.check_cost()
    except CostLimit as error:
        stopped.append(error)
    return bool(stopped)


def _timing(plan: RunPlan, can: Capabilities) -> Timing:
    return Timing(
        window_s=min(plan.window_s, can.idle_prompt_s or plan.window_s),
        quiet_before_s=2.0 if plan.wait else 0.0,
        quiet_after_s=2.0 if can.knows_idle else 3.0,
    )


async def _record_question(
    folder: Path, question: Question, system: System, turns: Sequence[TurnInput], how: Playing
) -> Recorded:
    place = folder / "sessions" / question.id
    attempt = 1 + len(list((folder / "attempts").glob(f"{question.id}-*")))
    shutil.rmtree(place, ignore_errors=True)  # unfinished: it has no session.json
    started = datetime.now(UTC).isoformat(timespec="seconds")
    detector = open_streaming_detector(END_POINTER)
    result = await record(system, turns, place, detector, how)
    session = SessionRecord(
        question_id=question.id,
        category=question.category,
        attempt=attempt,
        seed=how.seed,
        started_at=started,
        pace=how.pace,
        turns=tuple(result.marks),
        n_turns_expected=len(turns),
        fault=result.fault,
        n_samples=result.n_samples,
        clipped_samples=result.clipped_samples,
        end_pointer=detector.name,
        files=store.hashes_of(place),
    )
    store.write_record(place / store.SESSION, session)
    return result


def _set_aside(folder: Path, question: str, attempt: int) -> None:
    kept = folder / "attempts" / f"{question}-{attempt}"
    kept.parent.mkdir(exist_ok=True)
    (folder / "sessions" / question).rename(kept)


def _seed(seed: int, question: str) -> int:
    """A session's seed: from the run's seed and the question alone, whatever else is asked."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{question}".encode()).digest()[:4], "big")
