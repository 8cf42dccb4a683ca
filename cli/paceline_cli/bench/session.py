"""One run from end to end: learn the prompt's cost, offer the schedule, watch the stack, judge."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from paceline_cli.bench.client import Client
from paceline_cli.bench.observation import BenchObservation, Decisions
from paceline_cli.bench.openloop import Arrival, Ending, OpenLoop
from paceline_cli.bench.profiles import PROBE_WORDS, Calibration, Writer, calibrate, schedule
from paceline_cli.bench.report import Report, Run, report
from paceline_core.clock import Clock
from paceline_core.errors import Unreachable

LEAD_S = 0.5


class Watcher(Protocol):
    async def begin(self, start: float) -> None: ...

    async def end(self) -> BenchObservation: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Observer:
    """A watcher, and how to learn which decisions were taken since a wall time (Unix seconds)."""

    watch: Watcher
    decisions: Callable[[float], Decisions | None]


async def execute(run: Run, client: Client, clock: Clock, observer: Observer | None = None) -> Report:
    """Carry out a run and report on it; raises Unreachable when not even a first request is answered."""
    try:
        return await _execute(run, client, clock, observer)
    finally:
        if observer is not None:
            await observer.watch.close()


async def _execute(run: Run, client: Client, clock: Clock, observer: Observer | None) -> Report:
    cost = await learn(client, run.seed)
    writer = Writer(run.seed)

    def prepare(arrival: Arrival) -> bytes:
        return client.prepare(writer.text(cost.words(arrival.prompt_tokens)), arrival.output_tokens)

    start, began = clock.monotonic() + LEAD_S, clock.utc().timestamp() + LEAD_S
    if observer is not None:
        await observer.watch.begin(start)
    samples = await OpenLoop(prepare, client.send, clock).run(schedule(run.profile, run.seed), start)
    await clock.sleep(max(start + run.profile.duration - clock.monotonic(), 0.0))
    seen = BenchObservation()
    if observer is not None:
        seen = replace(await observer.watch.end(), decisions=observer.decisions(began))
    return report(run, samples, seen)


async def learn(client: Client, seed: int) -> Calibration:
    """Ask two short questions and read from their `usage` what a prompt costs."""
    writer = Writer(~seed)
    counts = [await _prompt_tokens(client, writer.text(words)) for words in (1, 1 + PROBE_WORDS)]
    return calibrate(*counts)


async def _prompt_tokens(client: Client, prompt: str) -> int:
    sample = await client.send(Arrival(0, 0.0, "probe", 0, 1), client.prepare(prompt, 1))
    if sample.ending is not Ending.OK or sample.usage is None:
        raise Unreachable(f"the first request ended {sample.ending}: {sample.detail}")
    return sample.usage.prompt_tokens
