"""A language model as judge: MT-Bench's single-answer grading."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kamebench.clock import NS_PER_S, Clock, MonotonicClock
from kamebench.errors import JudgeFault, WorldFault
from kamebench.judge.base import Item, Judge, JudgeOptions
from kamebench.judge.cache import CachedAnswer, JudgeCache, sha256
from kamebench.judge.items import REFERENCE_CATEGORIES
from kamebench.judge.limit import AdaptiveLimit, OnWait
from kamebench.judge.parsing import RatingParser, parse_published, parse_rating
from kamebench.judge.prompts import published_prompts, single_messages, single_prompt
from kamebench.judge.shield import Shielded, shield
from kamebench.llm.base import Backend, ChatRequest, Completion, Message
from kamebench.records import Verdict

TEMPERATURE = 0.0
MAX_TOKENS = 2048
"""As FastChat's llm_judge."""
ASK_AGAIN = 3
"""How often a judge without a verdict is asked again."""
RATE_LIMITED = ("rate_limit", "overloaded")
HOPELESS = ("auth", "permission", "not_found", "unknown_model", "quota")
"""Kinds of faults after which asking about the next turn is pointless."""

OpenBackend = Callable[[], Backend]


@dataclass(frozen=True, slots=True)
class Retries:
    """Bounds on asking a provider again after a fault that may pass, for one request."""

    attempts: int = 6
    max_s: float = 300.0
    first_pause_s: float = 1.0

    def pause_s(self, failed: int, error: WorldFault) -> float:
        """The provider's own word where it gave one, else doubled each time, with jitter."""
        stated = getattr(error, "retry_after_s", None)
        if stated is not None:
            return float(stated)
        return self.first_pause_s * 2 ** (failed - 1) * random.uniform(0.75, 1.25)  # noqa: S311


class ModelJudge(Judge):
    """Asks a language model. The back-end is opened when something is not in the cache."""

    def __init__(
        self,
        options: JudgeOptions,
        open_backend: OpenBackend,
        *,
        clock: Clock | None = None,
        retries: Retries | None = None,
    ) -> None:
        self.spec, self.family = options.spec, family_of(options.spec)
        self.published, self.speech_aware = options.preset == "published", options.speech_aware
        self.references = "original" if self.published else None
        self.name = slug(options.spec) + ("+published" if self.published else "")
        self.name += "+speech-aware" if self.speech_aware else ""
        self._url, self._open_backend = options.url, open_backend
        self._cache = JudgeCache(options.cache) if options.use_cache else None
        self._clock = clock or MonotonicClock()
        self._limit = options.limits.setdefault(self.family, AdaptiveLimit(clock=self._clock))
        self._retries = retries or Retries()
        self._backend: Backend | None = None
        self._opening = asyncio.Lock()
        self._hopeless: WorldFault | None = None
        self._parse: RatingParser = parse_published if self.published else parse_rating
        self.counts = {"requests": 0, "cached": 0, "input_tokens": 0, "output_tokens": 0}

    def settings(self) -> dict[str, Any]:
        names = ("single-v1", "single-v1-multi-turn", "single-math-v1", "single-math-v1-multi-turn")
        prompts = published_prompts()
        return {
            "judge": "model",
            "model": self.spec,
            "temperature": TEMPERATURE,
            "max_tokens": MAX_TOKENS,
            "preset": "published" if self.published else "default",
            "parser": "first match" if self.published else "last verdict",
            "asked_again": 0 if self.published else ASK_AGAIN,
            "answers_shielded": not self.published,
            "speech_aware": self.speech_aware,
            "prompts": {name: prompts[name].sha256[:16] for name in names if name in prompts},
            "reference_categories": list(REFERENCE_CATEGORIES),
        }

    def warnings(self, backend: str | None) -> tuple[str, ...]:
        if backend is None or family_of(backend) != self.family or self.family == "unknown":
            return ()
        return (
            f"judge '{self.spec}' and back-end '{backend}' are of one family ({self.family}): models favour "
            "answers of their own kind. Score the run with another judge too.",
        )

    def listen(self, on_wait: OnWait | None) -> None:
        self._limit.on_wait = on_wait

    def order(self, items: list[Item]) -> list[Item]:
        """As published: first turns before later ones, and in each those without a reference first."""
        return sorted(items, key=lambda item: (item.turn, item.category in REFERENCE_CATEGORIES))

    def usage(self) -> dict[str, Any]:
        return dict(self.counts)

    async def judge(self, item: Item, repeat: int = 0) -> Verdict:
        shown = [Shielded(text) if self.published else shield(text) for text in item.answers]
        messages = single_messages(item, [one.text for one in shown], speech_aware=self.speech_aware)
        changed = [span for one in shown for span in one.changed]
        detail: dict[str, Any] = {"prompt": single_prompt(item).name}
        if changed:
            detail["neutralised"] = changed
        base: dict[str, Any] = {
            "question_id": item.question_id,
            "turn": item.turn,
            "answer": item.answer,
            "reference": item.reference,
            "detail": detail,
        }
        try:
            rating, texts = await self.ask(messages, self._parse, self.key(item, messages, repeat))
        except WorldFault as error:
            return Verdict(**base, status="judge_fault", reason=f"{error.party}: {error.kind}: {error}")
        base |= {"explanation": texts[-1], "attempts": len(texts)}
        if rating is None:
            return Verdict(**base, status="unparsed", reason=f"no verdict in {len(texts)} answer(s)")
        return Verdict(**base, status="scored", score=rating)

    def key(self, item: Item, messages: tuple[Message, ...], repeat: int) -> dict[str, Any]:
        """What a cached answer hangs on."""
        return {
            "judge": self.spec,
            "url": self._url,
            "temperature": TEMPERATURE,
            "max_tokens": MAX_TOKENS,
            "repeat": repeat,
            "messages": sha256("\0".join(f"{m.role}\0{m.content}" for m in messages)),
            "questions": [sha256(text) for text in item.questions],
            "answers": [sha256(text) for text in item.answers],
            "references": [None if text is None else sha256(text) for text in item.references],
        }

    async def ask(
        self, messages: tuple[Message, ...], parse: Callable[[str], Any], key: dict[str, Any]
    ) -> tuple[Any, list[str]]:
        """What `parse` reads from the judge's answer, or None, and all its answers in order.

        Raises:
            WorldFault: the judge could not be asked. UserError: it cannot be opened.
        """
        if self._cache is not None and (known := self._cache.get(key)) is not None:
            found = parse(known.text)
            if found is not None:
                self.counts["cached"] += 1
                return found, [known.text]
        texts: list[str] = []
        request = ChatRequest(messages, TEMPERATURE, MAX_TOKENS)
        for _ in range(1 if self.published else 1 + ASK_AGAIN):
            completion = await self._complete(request)
            texts.append(completion.text)
            found = self._read(completion, parse)
            if found is not None:
                self._keep(key, completion)
                return found, texts
        return None, texts

    def _read(self, completion: Completion, parse: Callable[[str], Any]) -> Any:
        """Nothing is read from an answer that was cut off, except as published."""
        whole = completion.finish_reason in ("stop", "unknown")
        return parse(completion.text) if whole or self.published else None

    def _keep(self, key: dict[str, Any], completion: Completion) -> None:
        if self._cache is not None:
            usage = completion.usage
            self._cache.put(
                CachedAnswer(
                    key=key,
                    text=completion.text,
                    finish_reason=completion.finish_reason,
                    input_tokens=usage.input_tokens,
                    output_tokens=usage.output_tokens,
                )
            )

    async def _complete(self, request: ChatRequest) -> Completion:
        """One answer, asked for again within bounds when the fault may pass."""
        began_ns, failed = self._clock.now_ns(), 0
        while True:
            if self._hopeless is not None:
                raise self._hopeless
            try:
                async with self._limit.slot():
                    completion = await self._request(request)
                await self._limit.succeeded()
                return completion
            except WorldFault as error:
                failed += 1
                self._note(error)
                pause_s = self._retries.pause_s(failed, error)
                spent_s = (self._clock.now_ns() - began_ns) / NS_PER_S
                if not error.retryable or failed >= self._retries.attempts:
                    raise
                if spent_s + pause_s > self._retries.max_s:
                    raise
                if error.kind in RATE_LIMITED:
                    self._limit.refused(pause_s)
                else:
                    await self._clock.sleep_until_ns(self._clock.now_ns() + round(pause_s * NS_PER_S))

    async def _request(self, request: ChatRequest) -> Completion:
        backend = await self._opened()
        self.counts["requests"] += 1
        completion = await backend.complete(request)
        self.counts["input_tokens"] += completion.usage.input_tokens or 0
        self.counts["output_tokens"] += completion.usage.output_tokens or 0
        if completion.finish_reason == "refusal":
            raise JudgeFault("the judge refused to answer", kind="refusal")
        return completion

    async def _opened(self) -> Backend:
        async with self._opening:
            if self._backend is None:
                backend = self._open_backend()
                await backend.start()
                self._backend = backend
            return self._backend

    def _note(self, error: WorldFault) -> None:
        if error.kind in HOPELESS and not error.retryable:
            self._hopeless = error

    async def aclose(self) -> None:
        if self._backend is not None:
            await self._backend.aclose()
            self._backend = None


def create(options: JudgeOptions) -> ModelJudge:
    """The judge of a back-end's name."""

    def open_it() -> Backend:
        from kamebench.llm import open_backend

        return open_backend(options.spec, url=options.url)

    return ModelJudge(options, open_it)


def slug(spec: str) -> str:
    """A judge's name as part of a file name."""
    return re.sub(r"[^A-Za-z0-9._@-]+", "_", spec).strip("_")


_FAMILIES = (
    (r"(?:gpt|chatgpt|o\d|codex)(?![a-z])", "openai"),
    (r"claude", "anthropic"),
    (r"(?:gemini|gemma)", "google"),
)


def family_of(spec: str) -> str:
    """Who made the model of a back-end's name, as far as the name tells; without opening it."""
    provider, _, model = spec.partition(":")
    for pattern, family in _FAMILIES:
        if provider == family or re.match(pattern, (model or provider).lower()):
            return family
    return spec if provider in ("local", "reference", "openai-compatible") else "unknown"
