"""Python per step of the scheduler alone: 256 running requests, 1,000 waiting, three classes, a prefix cache in use.

Pages are about 80 % held, and too few for the outputs, so that requests are preempted. Whoever ends is replaced by a
new one; `step` and `commit` are timed together in CPU time, since other processes share the machine; what arrives
between steps is not timed.
"""

from collections.abc import Iterator
from itertools import count, cycle
from time import process_time

from paceline_core.registry.enums import RequestClass
from paceline_core.wire import StepTime
from paceline_workers.engine.memory.kv import KvMemory
from paceline_workers.engine.scheduling import Limits, Request, Sample, Scheduler
from paceline_workers.messages import Sampling

RUNNING = 256
WAITING = 1000
PAGE = 64
PROMPT = 512
OUTPUT = 200
PAGES = 2600
STEP_S = 0.02


def step_seconds(steps: int) -> tuple[list[float], Scheduler]:
    """CPU seconds of each of `steps` steps after the engine has filled up, and the scheduler for its counters."""
    core, arrivals = _scheduler(), _requests()
    taken, now = [], 0.0
    for number in range(RUNNING + steps):
        now += STEP_S
        while len(core.waiting) < WAITING:
            request = next(arrivals)
            request.arrival = now
            core.submit(request)
        began = process_time()
        plan = core.step(now)
        samples = [Sample(3) for chunk in plan.chunks if chunk.samples]
        core.commit(plan, samples, now)
        if number >= RUNNING:
            taken.append(process_time() - began)
    return taken, core


def _scheduler() -> Scheduler:
    limits = Limits(
        max_model_len=4096,
        vocab_size=1 << 31,
        page_tokens=PAGE,
        max_seqs=RUNNING,
        step_tokens=2048,
        tpot=dict.fromkeys(RequestClass, 0.1),
    )
    core = Scheduler(KvMemory(PAGES, PAGE), limits)
    core.model = StepTime(base=0.006, prefill=2.3e-5, sequence=1.2e-5, kv=4e-8, context=1e-9)
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
            sampling=Sampling(temperature=0.0),
            arrival=0.0,
            request_class=next(classes),
        )
