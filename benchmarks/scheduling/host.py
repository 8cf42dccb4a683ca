"""Python per step of the scheduler alone: 256 running requests, 1,000 waiting, three classes, a prefix cache in use.

Every third request follows a grammar; its tokens are drawn under the grammar's mask, which is timed apart, since the
masks belong to the sampler. Pages are about 80 % held, and too few for the outputs, so that requests are preempted.
Steps are planned before the last one's results are in, as the engine does. Whoever ends is replaced by a new one;
`step` and `commit` are timed together in CPU time, since other processes share the machine; what arrives between steps
is not timed.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, cycle
from time import process_time

import numpy as np

from paceline_core.registry.enums import RequestClass
from paceline_core.wire import StepTime
from paceline_workers import demo
from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.sampling import Sampler
from paceline_workers.engine.sampling.grammar_matcher import Grammars
from paceline_workers.engine.scheduling import Request, SampledToken, Scheduler, SchedulerLimits, StepPlan
from paceline_workers.messages import Sampling

RUNNING = 256
WAITING = 1000
PAGE = 64
PROMPT = 512
OUTPUT = 200
PAGES = 2000
STEP_S = 0.02
STRUCTURED = 3
VOCAB = 1536
PLAIN = Sampling(temperature=0.0)
NUMBERS = Sampling(
    temperature=0.0,
    grammar="json_schema:" + json.dumps({"type": "array", "items": {"type": "integer"}, "minItems": 2 * OUTPUT}),
)
"""A text that never ends before its limit."""


@dataclass
class Measured:
    """CPU seconds of each step after the engine has filled up, and of the masks of each; sums over these steps."""

    core: Scheduler
    steps: list[float] = field(default_factory=list)
    masks: list[float] = field(default_factory=list)
    structured: int = 0
    held: int = 0


def measure(steps: int) -> Measured:
    """Run `steps` steps of a full engine."""
    found = Measured(_scheduler())
    sampler, arrivals, flight = Sampler(_grammars()), _requests(), StepPlan()
    now = 0.0
    for number in range(RUNNING + steps):
        now += STEP_S
        _arrive(found.core, arrivals, now)
        began = process_time()
        plan = found.core.step(now)
        planned = process_time()
        samples, structured = _draw(flight, sampler)
        drawn = process_time()
        found.core.commit(flight, samples, now)
        if number >= RUNNING:
            found.steps.append(process_time() - drawn + planned - began)
            found.masks.append(drawn - planned)
            found.structured += structured
            found.held += found.core.memory.pool.held
        flight = plan
    return found


def _arrive(core: Scheduler, arrivals: Iterator[Request], now: float) -> None:
    while len(core.waiting) < WAITING:
        request = next(arrivals)
        request.arrival = now
        core.submit(request)


def _draw(plan: StepPlan, sampler: Sampler) -> tuple[list[SampledToken], int]:
    """What a model without preferences says; the number of rows that had a grammar."""
    rows = [chunk.request for chunk in plan.chunks if chunk.samples]
    structured = [request for request in rows if request.sampling.grammar]
    logits = np.zeros((len(structured), VOCAB), dtype=np.float32)
    drawn = iter(sampler(logits, structured))
    return [next(drawn) if request.sampling.grammar else SampledToken(3) for request in rows], len(structured)


def _grammars() -> Grammars:
    grammars = Grammars(demo.FOLDER / "tokenizer.json", VOCAB, (0,))
    grammars.prepare(NUMBERS.grammar).result()
    return grammars


def _scheduler() -> Scheduler:
    limits = SchedulerLimits(
        max_model_len=4096,
        vocab_size=1 << 31,
        page_tokens=PAGE,
        max_seqs=RUNNING,
        step_tokens=2048,
        tpot=dict.fromkeys(RequestClass, 0.1),
    )
    core = Scheduler(KVCacheManager(PAGES, PAGE), limits)
    core.learn(StepTime(base=0.006, prefill=2.3e-5, sequence=1.2e-5, kv=4e-8, context=1e-9))
    return core


def _requests() -> Iterator[Request]:
    """Half of each prompt is one of sixteen prefixes; lengths differ, and so do outputs."""
    classes = cycle(RequestClass)
    for number in count():
        prompt = [number % 16] * (PROMPT // 2) + [100 + number] * (number * 37 % PROMPT)
        yield Request(
            id=f"r{number}",
            prompt_len=len(prompt),
            tokens=prompt,
            max_tokens=OUTPUT + number * 53 % OUTPUT,
            sampling=PLAIN if number // 3 % STRUCTURED else NUMBERS,
            arrival=0.0,
            request_class=next(classes),
        )
