"""The reference backend: PyTorch on the CPU, pages gathered for each layer. Slow and exact.

float32 unless the configuration selects bf16, which halves memory. If the processor multiplies bf16 (AMX, AVX512-BF16),
bf16 is several times as fast in prefill; otherwise it is slower in everything but single streams.
With a `pool` of one thread a step computes there while the host plans and lays out the next one; that thread sees only
tensors, never a request. A token that is still being drawn is filled into the next step between the two.
"""

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from itertools import islice

import torch
from torch import Tensor
from torch.nn.functional import normalize

from paceline_planner import accelerators, steptime
from paceline_planner.hardware import Dtype
from paceline_planner.shapes import ModelShape
from paceline_planner.steptime import Caps
from paceline_workers.config import EngineConfig
from paceline_workers.engine import sizing
from paceline_workers.engine.backends.base import Alive, BackendInfo, Pause, StepResult, unheard
from paceline_workers.engine.backends.cpu.linear import LinearFactory
from paceline_workers.engine.kv_cache.attention_window import widest
from paceline_workers.engine.loading import Stages, copy_seconds, first_step, memory_named, page_files
from paceline_workers.engine.model import config, decoder
from paceline_workers.engine.model.attention import PagedCache
from paceline_workers.engine.model.batch import Batch
from paceline_workers.engine.model.decoder import Decoder
from paceline_workers.engine.model.weights import TORCH_TYPES, Weights
from paceline_workers.engine.sampling import Grammars, Sampler, prompt_logprob
from paceline_workers.engine.scheduling import NO_TOKEN, Request, SampledToken, StepPlan
from paceline_workers.engine.sizing import free_memory
from paceline_workers.engine.timer import Timer
from paceline_workers.messages import PromptLogprob
from paceline_workers.model_source import locate

SCORED = 64
"""How many rows of a prompt to hold logits for at a time."""


@dataclass(frozen=True, slots=True)
class _Computed:
    """A step's logits [drawn rows, vocabulary], its embeddings [embedded rows, hidden] of length 1, and its scores."""

    logits: Tensor
    vectors: Tensor
    scores: list[list[PromptLogprob]]


@dataclass(frozen=True, slots=True)
class _Prompt:
    """The prompt tokens after those computed, whose likelihood is requested, each with a number of candidates."""

    following: list[int]
    top: int


@dataclass(slots=True)
class _InFlightStep:
    """A step: its work, its layout, and the requests that sample in their order."""

    compute: Callable[[], _Computed]
    batch: Batch
    requests: list[Request]
    result: Future[_Computed] | None = None


class Runner:
    """At most two steps in flight: one computes, one waits for its tokens."""

    def __init__(self, decoder: Decoder, cache: PagedCache, sampler: Sampler, pool: Executor | None = None) -> None:
        self._decoder = decoder
        self._cache = cache
        self._sampler = sampler
        self._pool = pool
        self._flights: deque[_InFlightStep] = deque()

    def launch(self, plan: StepPlan, page_tokens: int) -> None:
        """Lay a step out; it begins at once, or when the one in flight is collected."""
        batch = self._decoder.lay_out(plan, page_tokens)
        requests = [chunk.request for chunk in plan.chunks if chunk.samples]
        prompts = [
            _Prompt(
                chunk.request.tokens[(first := chunk.start + 1) : first + chunk.scored], chunk.request.prompt_logprobs
            )
            for chunk in plan.chunks
            if chunk.scored
        ]
        embedded = [row for row, request in enumerate(requests) if request.embed]

        def compute() -> _Computed:
            self._cache.copy(plan.copies)
            states = self._decoder.states(batch, self._cache)
            last, rest = states[: len(requests)], states[len(requests) :]
            scores = self._scores(rest, prompts)
            if embedded:
                return self._embedded(last, embedded, scores)
            return _Computed(self._decoder.logits(last), last[:0], scores)

        self._flights.append(flight := _InFlightStep(compute, batch, requests))
        if len(self._flights) == 1 and self._pool:
            flight.result = self._pool.submit(compute)

    def collect(self) -> StepResult:
        """Samples and scores of the oldest step. After an exception, nothing is in flight any more."""
        flight, waiting = self._flights.popleft(), list(self._flights)
        self._flights.clear()
        computed = flight.compute() if flight.result is None else flight.result.result()
        drawn = iter(self._sampler(computed.logits.numpy(), [one for one in flight.requests if not one.embed]))
        vectors = iter(computed.vectors)
        samples = [
            SampledToken(NO_TOKEN, vector=next(vectors).numpy().tobytes()) if request.embed else next(drawn)
            for request in flight.requests
        ]
        for following in waiting:
            known = dict(zip(flight.requests, samples, strict=True))
            for row, request in following.batch.unknown:
                following.batch.tokens[row] = known[request].token
            if self._pool:
                following.result = self._pool.submit(following.compute)
            self._flights.append(following)
        return StepResult(samples, scores=computed.scores)

    def _scores(self, states: Tensor, prompts: list[_Prompt]) -> list[list[PromptLogprob]]:
        """The scores of each prompt's rows."""
        wanted = [(token, prompt.top) for prompt in prompts for token in prompt.following]
        scores: list[PromptLogprob] = []
        for first in range(0, len(wanted), SCORED):
            logits = self._decoder.logits(states[first : first + SCORED]).numpy()
            scores += [
                prompt_logprob(row, *one) for row, one in zip(logits, wanted[first : first + SCORED], strict=True)
            ]
        rest = iter(scores)
        return [list(islice(rest, len(prompt.following))) for prompt in prompts]

    def _embedded(self, states: Tensor, embedded: list[int], scores: list[list[PromptLogprob]]) -> _Computed:
        """Vectors of the rows `embedded`, logits of the others."""
        drawn = [row for row in range(len(states)) if row not in embedded]
        logits = self._decoder.logits(states[drawn]) if drawn else states[:0]
        return _Computed(logits, normalize(states[embedded].float(), dim=-1), scores)


ROOM = 1 << 30
"""The most bytes of KV pages if nothing is configured."""
PAGE_LAYOUT = "layer, 2, kv head, token, head_dim"
"""The layout of a page's bytes: part of the names of page files."""


@dataclass(frozen=True, slots=True)
class CpuBackend:
    """A decoder, its pages, and its facts for the loop."""

    facts: BackendInfo
    decoder: decoder.Decoder
    cache: PagedCache
    runner: Runner

    @classmethod
    def load(cls, engine: EngineConfig, source: str, timer: Timer, pause: Pause) -> "CpuBackend":
        """Load and warm the model of a source. Raises InvalidInput naming the file or field and the fix."""
        with memory_named(engine):
            return cls._load(engine, source, timer, pause)

    @classmethod
    def _load(cls, engine: EngineConfig, source: str, timer: Timer, pause: Pause) -> "CpuBackend":
        os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # huge pages for weights: torch asks at its first tensor
        # all cores but one: the API process needs it, and threads that compete for a core make every step wait
        torch.set_num_threads(engine.threads or max(len(os.sched_getaffinity(0)) - 1, 1))
        stages = Stages(timer)
        with stages.stage("config"):
            sizing.check_cpu(engine)
            folder = locate(source)
            settings = config.read(folder)
            shape = sizing.shaped(engine, settings.shape, Dtype.FP32)
            settings = replace(
                settings, shape=shape, attention_windows=sizing.attention_windows(engine, settings.attention_windows)
            )
            attention_window = widest(settings.attention_windows)
            page_bytes = engine.page_tokens * shape.kv_bytes_per_token
            pages = sizing.pages(engine, page_bytes, _room(engine, shape, page_bytes))
            limits = sizing.limits(
                engine,
                context=shape.max_context,
                vocab_size=shape.vocab,
                pages=pages,
                attention_window=attention_window,
            )
            host_pages = sizing.host_pages(engine, page_bytes)
            sizing.fit(engine, shape.weight_bytes + pages * page_bytes, free_memory())
        with stages.stage("load"), Weights(folder, TORCH_TYPES[shape.weight_dtype]) as weights:
            products = LinearFactory(engine.products, batch_invariant=engine.batch_invariant)
            model = decoder.load(settings, weights, products, lambda: pause(0.0))
        with stages.stage("warm"):
            files = page_files(engine, settings, folder, page_bytes, PAGE_LAYOUT)
            invariant = engine.batch_invariant
            cache = PagedCache(shape, pages, engine.page_tokens, host_pages, files, batch_invariant=invariant)
            model(model.lay_out(first_step(), engine.page_tokens), cache)
            copy_s = copy_seconds(cache.copy, _at_once, timer) if host_pages else 0.0
            grammars = Grammars.load(folder, shape.vocab, settings.generation.eos_ids)
        facts = BackendInfo(
            limits=limits,
            pages=pages,
            page_bytes=page_bytes,
            eos_ids=settings.generation.eos_ids,
            defaults=settings.generation.defaults,
            prior=steptime.prior(shape, accelerators.CPU, caps=Caps(engine.step_tokens, engine.max_seqs)),
            stages=stages.seconds,
            host_pages=host_pages,
            page_copy_s=copy_s,
            attention_window=attention_window,
            disk=files,
            grammars=grammars,
            embedding=shape.hidden,
        )
        return cls(facts, model, cache, Runner(model, cache, Sampler(grammars)))

    def launch(self, plan: StepPlan, since: float) -> None:  # noqa: ARG002 - only emulation uses it
        self.runner.launch(plan, self.facts.limits.page_tokens)

    def collect(self, alive: Alive = unheard) -> StepResult:  # noqa: ARG002 - a step uses the CPU all the time
        """One sample for each chunk that closes its request's gap."""
        return self.runner.collect()


def _at_once() -> None:
    """Does nothing: copies on the host are complete when their call returns."""


def _room(engine: EngineConfig, shape: ModelShape, page_bytes: int) -> int:
    """The bytes that `max_seqs` requests of full length need, but at most ROOM and at least one page."""
    longest = engine.max_model_len or shape.max_context
    wanted = engine.max_seqs * -(-longest // engine.page_tokens) * page_bytes
    return max(min(wanted, ROOM), page_bytes)
