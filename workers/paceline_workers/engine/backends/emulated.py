"""A backend without weights: real plans and pages, words for tokens, steps padded to the planner's step time.

A token depends on (seed, choice, position, the tokens just before it), so a stream resumed on another worker continues
with the same words. A step ends at `since` plus its clock's seconds, including host work. The time by which it really
ends later is its lateness; a run in which that exceeds 5 % of a step is void. Known hole: an answer never stops early.
"""

import json
import math
import re
import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path

from paceline_core.errors import InvalidInput
from paceline_planner import accelerators, coldstart, memory, shapes, steptime
from paceline_planner.coldstart import Stage
from paceline_planner.hardware import Accelerator, Dtype
from paceline_planner.shapes import ModelShape
from paceline_planner.step_clock import RooflineClock, StepClock
from paceline_planner.steptime import Caps
from paceline_workers import demo
from paceline_workers.config import EmulateConfig, EngineConfig
from paceline_workers.engine import sizing
from paceline_workers.engine.backends.base import Alive, BackendInfo, Pause, StepResult, unheard
from paceline_workers.engine.kv_cache.attention_window import ALL
from paceline_workers.engine.kv_cache.offload import CopyKind
from paceline_workers.engine.scheduling import Chunk, Request, SampledToken, StepPlan
from paceline_workers.engine.timer import Timer
from paceline_workers.messages import PromptLogprob

_WORD = re.compile("Ġ[a-z]{2,}")
_MEMORY = 4
HOST_LINK = 50e9
"""Bytes a second between host and device: an assumption, four fifths of PCIe 5.0 x16 in one direction."""
_SIGN_S = 1.0
"""How often a long step reports progress, in seconds."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The size of the demo tokenizer, and the ids of its whole words (no special tokens, no parts of a character)."""

    size: int
    words: tuple[int, ...]

    @classmethod
    def read(cls, folder: Path) -> "Vocabulary":
        """From tokenizer.json; raises InvalidInput naming the file."""
        path = folder / "tokenizer.json"
        try:
            ids: dict[str, int] = json.loads(path.read_text())["model"]["vocab"]
        except (OSError, ValueError, KeyError) as error:
            raise InvalidInput(str(path), f"is not a readable tokenizer ({error}); reinstall paceline") from None
        words = sorted(number for text, number in ids.items() if _WORD.fullmatch(text))
        return cls(max(ids.values()) + 1, tuple(words))

    def draw(self, request: Request) -> SampledToken:
        """The next word of a request; for a beam, all its candidates."""
        sampling = request.sampling
        recent = request.tokens[-_MEMORY:]
        place = len(request.tokens)
        seen = struct.pack(f"<QII{len(recent)}i", sampling.seed % 2**64, request.choice, place, *recent)
        number = int.from_bytes(blake2b(seen, digest_size=8).digest(), "little")
        words = self._permitted(request)
        if not words:
            return SampledToken(
                0, error="`allowed_token_ids` and `bad_words` leave no token to come next.", refused=True
            )
        token = words[number % len(words)]
        if request.beams is not None:
            return SampledToken(token, candidates=self._candidates(number, request.beams.search.keep))
        return SampledToken(token, self._logprobs(token, sampling.logprobs))

    def scores(self, chunk: Chunk) -> list[PromptLogprob]:
        """Gives every token of a prompt the likelihood of any word."""
        even, top = -math.log(len(self.words)), chunk.request.prompt_logprobs
        return [(even, 1, [(word, even) for word in self.words[:top]]) for _ in range(chunk.scored)]

    def _permitted(self, request: Request) -> Sequence[int]:
        """The words that the request's own lists allow."""
        words, barred = request.sampling.allowed or self.words, set(request.bad_word_ends)
        return [word for word in words if word not in barred] if barred else words

    def _candidates(self, first: int, count: int) -> list[tuple[int, float]]:
        """Distinct words from a drawn one on, each half as likely as the one before."""
        words = [self.words[(first + place) % len(self.words)] for place in range(min(count, len(self.words)))]
        return [(word, -math.log(2) * place) for place, word in enumerate(words, 1)]

    def _logprobs(self, token: int, top: int) -> tuple[float, list[tuple[int, float]]] | None:
        even = -math.log(len(self.words))
        return None if top < 0 else (even, [(word, even) for word in (token, *self.words)[:top]])


@dataclass(frozen=True, slots=True)
class _Flight:
    """A step, its duration, and when it is over."""

    plan: StepPlan
    seconds: float
    end: float


@dataclass(frozen=True, slots=True)
class EmulatedBackend:
    """One emulated replica; its steps take the time that `clock` predicts."""

    facts: BackendInfo
    clock: StepClock
    vocabulary: Vocabulary
    timer: Timer
    _flights: deque[_Flight] = field(default_factory=deque)

    @classmethod
    def load(cls, engine: EngineConfig, emulate: EmulateConfig, timer: Timer, pause: Pause) -> "EmulatedBackend":
        """Check that the model fits, then sleep through the cold start, stage by stage. Raises InvalidInput."""
        with _field("engine.emulate"):
            shape, device = emulated_shape(engine, emulate.model), accelerators.accelerator(emulate.accelerator)
            stages = coldstart.stages(shape, device, emulate.cold_start_s)
        vocabulary = Vocabulary.read(demo.FOLDER)
        facts = backend_info(engine, shape, device, vocabulary.size, stages)
        for stage in stages:
            pause(stage.seconds)
        return cls(facts, RooflineClock(shape, device), vocabulary, timer)

    def launch(self, plan: StepPlan, since: float) -> None:
        """Begin when the step in flight is over; it takes the clock's time."""
        begin = self._flights[-1].end if self._flights else since
        seconds = self.clock.seconds(plan.work) + self._copying(plan)
        self._flights.append(_Flight(plan, seconds, begin + seconds))

    def collect(self, alive: Alive = unheard) -> StepResult:
        """Draw the words, then wait until the step's time is over."""
        flight = self._flights.popleft()
        samples = [self.vocabulary.draw(chunk.request) for chunk in flight.plan.chunks if chunk.samples]
        while flight.end - self.timer.now() > _SIGN_S:
            self.timer.until(self.timer.now() + _SIGN_S)
            alive()
        self.timer.until(flight.end)
        scores = [self.vocabulary.scores(chunk) for chunk in flight.plan.chunks if chunk.scored]
        return StepResult(samples, max(self.timer.now() - flight.end, 0.0), flight.seconds, scores)

    def _copying(self, plan: StepPlan) -> float:
        """Seconds to copy pages over the host's link; copies within the device are negligible."""
        return self.facts.page_copy_s * sum(copy.kind is not CopyKind.DEVICE for copy in plan.copies)


def emulated_shape(engine: EngineConfig, model: str) -> ModelShape:
    """The shape from the catalogue, with the configured type of keys and values, if any."""
    found = shapes.shape(model)
    return found if engine.kv_dtype == "auto" else replace(found, kv_dtype=Dtype(engine.kv_dtype))


def backend_info(
    engine: EngineConfig, shape: ModelShape, device: Accelerator, vocab_size: int, stages: Iterable[Stage]
) -> BackendInfo:
    caps = Caps(engine.step_tokens, engine.max_seqs)
    fit = memory.fits(shape, device, context=engine.max_model_len or 1, caps=caps)
    if not fit.fits:
        raise InvalidInput("engine.emulate", fit.reason)
    page_bytes = engine.page_tokens * shape.kv_bytes_per_token
    pages = sizing.pages(engine, page_bytes, fit.kv_bytes)
    if engine.disk_path is not None:
        raise InvalidInput("engine.disk_path", "an emulated worker has no bytes to write; leave it out")
    (attention_window,) = sizing.attention_windows(engine, (ALL,))
    return BackendInfo(
        limits=sizing.limits(
            engine, context=shape.max_context, vocab_size=vocab_size, pages=pages, attention_window=attention_window
        ),
        pages=pages,
        page_bytes=page_bytes,
        eos_ids=(),
        prior=steptime.prior(shape, device, caps=caps),
        stages={stage.name: stage.seconds for stage in stages},
        emulated=True,
        ahead=True,
        host_pages=sizing.host_pages(engine, page_bytes),
        page_copy_s=page_bytes / HOST_LINK,
        attention_window=attention_window,
    )


@contextmanager
def _field(prefix: str) -> Iterator[None]:
    """Prefix the field that the planner names with the configuration's path."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(f"{prefix}.{error.field}", error.message) from None
