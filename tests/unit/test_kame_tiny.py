"""KAME end to end on a tiny random checkpoint, with a timed back-end and recogniser under a virtual clock."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kamebench.audio import FRAME_SAMPLES, Pcm
from kamebench.clock import NS_PER_MS, Clock, VirtualClock
from kamebench.errors import BadCheckpoint, BadConfig, UnknownName
from kamebench.llm.base import TurnContext
from kamebench.oracle import log as oracle_log
from kamebench.oracle.log import OracleLog
from kamebench.oracle.loop import OracleUpdate
from kamebench.oracle.rebuild import TurnWindow, last_completed, last_injected, rebuild_stream
from kamebench.records import SpokenTurn
from kamebench.runtime.engine import Slot, Stepped
from kamebench.runtime.voice import Voice, VoiceSettings, load
from kamebench.session import Playing, Recorded, Timing, TurnInput, record
from kamebench.systems import Setup
from kamebench.systems.kame import create
from kamebench.vad.base import StreamingDetector
from tests.tiny_models import SPEAKER, TEXT_CARD, write_checkpoint
from tests.unit.oracle_parts import Answer, TimedBackend

# torch 2.13 deprecates a decorator that it uses itself.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")

TIMING = Timing(
    lead_in_s=0.4, quiet_before_s=0.0, wait_limit_s=0.2, quiet_after_s=0.2, window_s=2.4, limit_s=2.4
)
# Turn 1 begins with frame 5, turn 2 with frame 45.
HEARD: list[dict[str, object]] = [
    {"frame": 9, "text": "the quick"},
    {"frame": 16, "text": "the quick brown fox", "final": True},
    {"frame": 50, "text": "lazy dog"},
    {"frame": 54, "text": "lazy dog while", "final": True},
]
ANSWERS = [
    Answer(((100, "the"),)),
    Answer(((310, "seven"), (350, " wise"), (1000, " owls")), end_ms=1010),
    Answer(end_ms=30),
    Answer(((200, "quietly"), (210, " watch")), end_ms=220),
]


class Deaf(StreamingDetector):
    name = "deaf"

    def is_speech(self, pcm: Pcm) -> bool:
        return False


def turn(number: int) -> TurnInput:
    rng = np.random.default_rng(number)
    pcm = (rng.standard_normal(FRAME_SAMPLES * 10) * 0.1).astype(np.float32)
    spoken = SpokenTurn(
        text_written="noise",
        text_spoken="noise",
        audio_sha256="0" * 64,
        n_samples=len(pcm),
        speech_start_sample=0,
        speech_end_sample=len(pcm),
        engine="noise",
        engine_version="1",
        voice="none",
    )
    return TurnInput(number, spoken, pcm, TurnContext("test", "q", "stem", number))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Four streams, greedy decoding."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_TORCH_COMPILE", "1")  # read when moshi is imported
        pytest.importorskip("moshi.models.lm")
    import torch
    from safetensors.torch import load_file, save_file

    folder = tmp_path_factory.mktemp("kame")
    write_checkpoint(folder, SPEAKER, lm_gen_config={"use_sampling": False})
    state = load_file(folder / "model.safetensors")
    torch.manual_seed(5)
    # Large, so that a wrong oracle token changes the text.
    state["oracle_emb.weight"] = torch.randn_like(state["text_emb.weight"]) * 3
    save_file(state, folder / "model.safetensors")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # tiny products: more threads only wait for each other
    yield folder
    torch.set_num_threads(threads)


def options(checkpoint: Path, folder: Path, **more: object) -> dict[str, Any]:
    script = folder / "script.json"
    script.write_text(json.dumps(HEARD))
    return {
        "weights": str(checkpoint),
        "dtype": "fp32",
        "device": "cpu",
        "recogniser": f"scripted:{script}",
        **more,
    }


def play(
    folder: Path, chosen: dict[str, Any], answers: Sequence[Answer], sessions: int = 1
) -> tuple[list[Recorded], TimedBackend, dict[str, Any]]:
    """Conversations of two turns, one after the other, in `lockstep`."""

    async def scenario(clock: Clock) -> tuple[list[Recorded], TimedBackend, dict[str, Any]]:
        backend = TimedBackend(clock, answers)
        system = create(Setup(chosen, backend, "timed"))
        await system.start()
        how = Playing("lockstep", 0, TIMING, clock)
        try:
            done = [
                await record(system, [turn(1), turn(2)], folder / str(n), Deaf(), how)
                for n in range(sessions)
            ]
        finally:
            await system.aclose()
        return done, backend, system.usage()

    async def run() -> tuple[list[Recorded], TimedBackend, dict[str, Any]]:
        clock = VirtualClock()
        return await clock.run(scenario(clock))

    return asyncio.run(run())


def replay(checkpoint: Path, frames: list[Pcm], log: OracleLog) -> list[int | None]:
    """The text tokens of a fresh model that is fed the audio and the oracle tokens of the log."""

    async def scenario() -> list[int | None]:
        voice = tiny(checkpoint)
        slot = voice.engine.open(0)
        slot._oracle = Told(log)  # type: ignore[assignment]
        texts = [(await slot.step(pcm)).text_token for pcm in frames]
        await slot.aclose()
        voice.engine.close()
        return texts

    return asyncio.run(scenario())


class Told:
    """An oracle stream read from a log."""

    def __init__(self, log: OracleLog) -> None:
        self._log = log

    def at(self, step: int) -> int:
        return self._log.steps[step].oracle


def tiny(folder: Path) -> Voice:
    return load(VoiceSettings(str(folder), dtype="fp32", device="cpu"), 1, "from-text")


def test_a_run_is_its_script_frame_by_frame_and_its_log_reproduces_it(
    checkpoint: Path, tmp_path: Path
) -> None:
    frames: list[Pcm] = []
    original = Slot.step

    async def watched(self: Slot, pcm: Pcm, updates: Sequence[OracleUpdate]) -> Stepped:
        frames.append(pcm)
        return await original(self, pcm, updates)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Slot, "step", watched)
        (recorded,), backend, usage = play(tmp_path, options(checkpoint, tmp_path), ANSWERS)
    assert recorded.fault is None
    log = oracle_log.read(tmp_path / "0")
    # Polls at frames 7, 13, 19, 25, 32, 38, 44, 50, 57: what frame 50 hears is seen at 57, with the final.
    assert [(r.frame, r.reason, r.turn, r.trigger) for r in log.requests] == [
        (13, "first", 1, "the quick"),
        (19, "final", 1, "the quick brown fox"),
        (57, "final", 2, "lazy dog while"),
    ]
    assert [(i.frame, i.request_id, i.reset, i.text) for i in log.injections] == [
        (15, 1, True, ""),
        (15, 1, False, "the"),
        (23, 2, True, ""),  # in the middle of the stream before
        (23, 2, False, "seven"),
        (24, 2, False, " wise"),
        (32, 2, False, " owls"),
    ]
    assert {n: end.outcome for n, end in log.ends.items()} == {1: "cancelled", 2: "completed", 3: "completed"}
    stream = rebuild_stream(log)
    assert stream is not None
    assert stream[23] == TEXT_CARD
    assert tuple(step.oracle for step in log.steps) == stream
    assert [step.frame for step in log.steps] == list(range(recorded.n_samples // FRAME_SAMPLES))
    texts = [step.text for step in log.steps]
    assert replay(checkpoint, frames, log) == texts
    without = OracleLog(steps=[step.model_copy(update={"oracle": 3}) for step in log.steps])
    assert replay(checkpoint, frames, without) != texts

    first, second = (TurnWindow.of(mark) for mark in recorded.marks)
    assert last_injected(log, first).text == last_completed(log, first).text == "seven wise owls"
    assert last_injected(log, second).text is None
    assert "nothing was injected" in last_injected(log, second).reason
    # What the model said in between is in the request's transcript.
    assert "assistant:" in backend.asked[2].messages[1].content
    assert usage == {"timed": {"requests": 3, "input_tokens": 14, "output_tokens": 6}}


def test_the_next_conversation_remembers_nothing(checkpoint: Path, tmp_path: Path) -> None:
    answers = [*ANSWERS[:3], *ANSWERS[:3]]
    recorded, _, _ = play(tmp_path, options(checkpoint, tmp_path), answers, sessions=2)
    assert [r.fault for r in recorded] == [None, None]
    one, two = (oracle_log.read(tmp_path / name) for name in ("0", "1"))
    assert [step.text for step in one.steps] == [step.text for step in two.steps]
    assert [(i.frame, i.tokens) for i in one.injections] == [(i.frame, i.tokens) for i in two.injections]


def test_conversations_side_by_side_are_those_they_are_alone(checkpoint: Path, tmp_path: Path) -> None:
    """Three at once on one model, each with its own loop and stream, and one that comes late."""
    answers = [Answer(((100, "seven"), (150, " wise"), (240, " owls")), end_ms=250)]

    def logs(folder: Path, delays_ms: Sequence[int]) -> list[tuple[list[Any], list[Any]]]:
        async def scenario(clock: Clock) -> None:
            backend = TimedBackend(clock, answers)
            system = create(Setup(options(checkpoint, tmp_path), backend, "timed", len(delays_ms)))
            assert system.capabilities.max_sessions == len(delays_ms)
            await system.start()

            async def one(n: int) -> None:
                await clock.sleep_until_ns(delays_ms[n] * NS_PER_MS)
                turns = [turn(10 * n + 1), turn(10 * n + 2)]
                done = await record(
                    system, turns, folder / str(n), Deaf(), Playing("lockstep", n, TIMING, clock)
                )
                assert done.fault is None

            try:
                await asyncio.gather(*(one(n) for n in range(len(delays_ms)) if delays_ms[n] >= 0))
            finally:
                await system.aclose()

        async def run() -> None:
            clock = VirtualClock()
            await clock.run(scenario(clock))

        asyncio.run(run())
        found = [oracle_log.read(folder / str(n)) for n, delay in enumerate(delays_ms) if delay >= 0]
        return [
            ([(s.text, s.oracle) for s in log.steps], [i.tokens for i in log.injections]) for log in found
        ]

    together = logs(tmp_path / "together", [0, 0, 1010])
    assert all(injections for _, injections in together)
    assert together[0] != together[1] != together[2]
    for n in range(3):
        delays = [-1, -1, -1]
        delays[n] = 0
        assert logs(tmp_path / f"alone{n}", delays) == [together[n]]


def test_a_backend_that_fails_in_turn_2_spoils_turn_2_alone(checkpoint: Path, tmp_path: Path) -> None:
    answers = [*ANSWERS[:2], Answer(((50, "quietly"),), end_ms=80, fault="rate_limit")]
    (recorded,), _, _ = play(tmp_path, options(checkpoint, tmp_path), answers)
    assert recorded.fault is not None
    assert (recorded.fault.party, recorded.fault.kind, recorded.fault.turn) == ("backend", "rate_limit", 2)
    assert [mark.turn for mark in recorded.marks] == [1]
    log = oracle_log.read(tmp_path / "0")
    assert log.ends[3].outcome == "failed"
    assert last_injected(log, TurnWindow.of(recorded.marks[0])).text == "seven wise owls"


def test_the_front_end_may_speak_on_without_its_backend(checkpoint: Path, tmp_path: Path) -> None:
    answers = [Answer(end_ms=50, fault="timeout")]
    chosen = options(checkpoint, tmp_path, on_backend_fault="continue")
    (recorded,), _, _ = play(tmp_path, chosen, answers)
    assert recorded.fault is None
    log = oracle_log.read(tmp_path / "0")
    assert log.summary is not None
    assert log.summary.failed == 3
    assert last_injected(log).reason.startswith("nothing was injected in this turn; the back-end failed")


def test_options_are_checked(checkpoint: Path, tmp_path: Path) -> None:
    backend = TimedBackend(VirtualClock(), ANSWERS)
    with pytest.raises(BadConfig, match="back-end"):
        create(Setup(options(checkpoint, tmp_path)))
    with pytest.raises(UnknownName, match="patient"):
        create(Setup(options(checkpoint, tmp_path, policy="pationt"), backend))
    with pytest.raises(BadConfig, match="chunking"):
        create(Setup(options(checkpoint, tmp_path, chunking="whole"), backend))
    with pytest.raises(BadCheckpoint, match=r"config\.json"):
        tiny(tmp_path)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("truncated", r"model\.safetensors: is truncated"),
        ("missing", r"out_norm\.alpha"),
        ("extra", r"surplus\.weight"),
        ("shape", r"text_linear\.weight"),
        ("config", "surprise"),
    ],
)
def test_weights_that_do_not_fit_are_named(checkpoint: Path, tmp_path: Path, damage: str, says: str) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    shutil.copytree(checkpoint, tmp_path, dirs_exist_ok=True)
    weights = tmp_path / "model.safetensors"
    state = load_file(weights)
    if damage == "truncated":
        weights.write_bytes(weights.read_bytes()[:-1000])
    elif damage == "config":
        config = json.loads((tmp_path / "config.json").read_text()) | {"surprise": 1}
        (tmp_path / "config.json").write_text(json.dumps(config))
    else:
        if damage == "missing":
            del state["out_norm.alpha"]
        elif damage == "extra":
            state["surplus.weight"] = torch.zeros(1)
        else:
            state["text_linear.weight"] = state["text_linear.weight"][:-1].clone()
        save_file(state, weights)
    with pytest.raises(BadCheckpoint, match=says):
        tiny(tmp_path)


def test_a_plain_moshi_checkpoint_gets_its_oracle_from_the_text_embedding(
    checkpoint: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    shutil.copytree(checkpoint, tmp_path, dirs_exist_ok=True)
    state = load_file(tmp_path / "model.safetensors")
    del state["oracle_emb.weight"]
    save_file(state, tmp_path / "model.safetensors")
    voice = tiny(tmp_path)
    voice.engine.close()
    assert voice.describe()["oracle_from_text_embedding"] is True
