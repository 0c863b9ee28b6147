"""A language model as judge: MT-Bench's single-answer grading."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from kamebench.clock import Clock
from kamebench.errors import JudgeFault, KamebenchError, UnknownName, WorldFault
from kamebench.judge.asking import Asker, OpenBackend, Retries
from kamebench.judge.base import Item, Judge, JudgeOptions
from kamebench.judge.cache import CachedAnswer, JudgeCache, sha256
from kamebench.judge.items import REFERENCE_CATEGORIES
from kamebench.judge.limit import AdaptiveLimit, OnWait
from kamebench.judge.parsing import RatingParser, parse_published, parse_rating
from kamebench.judge.prompts import published_prompts, single_messages, single_prompt
from kamebench.judge.shield import Shielded, shield
from kamebench.llm.base import ChatRequest, Completion, Message
from kamebench.llm.cost import Estimate, Load, estimate, estimate_tokens
from kamebench.records import Verdict

TEMPERATURE = 0.0
MAX_TOKENS = 2048
"""As FastChat's llm_judge."""
ASK_AGAIN = 3
"""How often a judge without a verdict is asked again."""
VERDICT_TOKENS = 250
"""A typical explanation with its verdict; for estimates only."""
BILLED = ("openai", "anthropic", "google")


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
        self._url = options.url
        self._cache = JudgeCache(options.cache) if options.use_cache else None
        limit = options.limits.setdefault(self.family, AdaptiveLimit(clock=clock))
        self._asker = Asker(open_backend, limit, clock=clock, retries=retries)
        self._parse: RatingParser = parse_published if self.published else parse_rating
        self._cached = 0

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
        self._asker.limit.on_wait = on_wait

    def order(self, items: list[Item]) -> list[Item]:
        """As published: first turns before later ones, and in each those without a reference first."""
        return sorted(items, key=lambda item: (item.turn, item.category in REFERENCE_CATEGORIES))

    def usage(self) -> dict[str, Any]:
        return {"requests": self._asker.requests, "cached": self._cached, "models": self._asker.usage()}

    def estimate(self, items: list[Item], repeats: int) -> list[Estimate]:
        from kamebench.llm import resolve

        asked = [
            messages
            for item in items
            for repeat in range(repeats)
            if not self._known(self.key(item, messages := self.messages(item), repeat))
        ]
        tokens = [sum(estimate_tokens(message.content) for message in messages) for messages in asked]
        load = Load(len(asked), math.ceil(sum(tokens) / max(1, len(tokens))), VERDICT_TOKENS)
        provider, model = resolve(self.spec)
        return [estimate(provider, model, load, billed=provider in BILLED)]

    def messages(self, item: Item) -> tuple[Message, ...]:
        """The request about an item, its answers made harmless."""
        return single_messages(item, [one.text for one in self._shown(item)], speech_aware=self.speech_aware)

    def _shown(self, item: Item) -> list[Shielded]:
        return [Shielded(text) if self.published else shield(text) for text in item.answers]

    async def judge(self, item: Item, repeat: int = 0) -> Verdict:
        messages = self.messages(item)
        changed = [span for one in self._shown(item) for span in one.changed]
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
        if (known := self._known(key)) is not None and (found := parse(known.text)) is not None:
            self._cached += 1
            return found, [known.text]
        texts: list[str] = []
        request = ChatRequest(messages, TEMPERATURE, MAX_TOKENS)
        for _ in range(1 if self.published else 1 + ASK_AGAIN):
            completion = await self._asker.complete(request)
            if completion.finish_reason == "refusal":
                raise JudgeFault(f"the judge refused: {completion.text[:200]}", kind="refusal")
            texts.append(completion.text)
            found = self._read(completion, parse)
            if found is not None:
                self._keep(key, completion)
                return found, texts
        return None, texts

    def _known(self, key: dict[str, Any]) -> CachedAnswer | None:
        return None if self._cache is None else self._cache.get(key)

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

    async def aclose(self) -> None:
        await self._asker.aclose()


def create(options: JudgeOptions) -> ModelJudge:
    """The judge of a back-end's name.

    Raises:
        UnknownName, BadConfig: there is no such back-end.
    """
    from kamebench.judge import JUDGES
    from kamebench.llm import open_backend, resolve

    try:
        resolve(options.spec)
    except UnknownName as error:
        raise UnknownName("judge", options.spec, ["none", *JUDGES.names(), *error.known]) from None
    return ModelJudge(options, lambda: open_backend(options.spec, url=options.url, max_cost=options.max_cost))


def slug(spec: str) -> str:
    """A judge's name as part of a file name."""
    return re.sub(r"[^A-Za-z0-9._@-]+", "_", spec).strip("_")


_FAMILIES = (
    (re.compile(r"gpt-|chatgpt-|o\d"), "openai"),
    (re.compile(r"claude"), "anthropic"),
    (re.compile(r"gemini|gemma"), "google"),
)


def family_of(spec: str) -> str:
    """Who made the model of a back-end's name, as far as the name tells; without opening it."""
    from kamebench.llm import resolve

    try:
        provider, model = resolve(spec)
    except KamebenchError:
        provider, _, model = spec.rpartition(":")
    model = model.partition("@")[0].rpartition("/")[2].lower()
    known = next((family for pattern, family in _FAMILIES if pattern.match(model)), None)
    if provider in ("openai", "anthropic", "google"):
        return provider
    if known is not None or provider in ("", "replay", "router", "scripted", "reference"):
        return known or "unknown"
    return f"{provider}:{model}" if model else provider
