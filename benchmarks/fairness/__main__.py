"""Fair queues: what a noisy tenant does to quiet ones, batch to interactive, fairness to prefixes, gateways to limits.

The first three in simulated services: emulated H100 with Llama 3.1 8B, and the production gateway and engines. The last
two with real processes, see `emulated` and `shared`.

`tenants`: nine tenants who always wait and six quiet ones; then the same with one more, of 20 times the load of a quiet
one and prompts ten times as long. Jain's index is over the service, by tokens, of those who always waited, and the gap
is the largest that came up between two of them at any time. The quiet ones' wait is compared with the day without the
noisy one. With VTC's own rule (who was idle is lifted to the least served) it grew by 15 to 43 %, from 0.3 s: a quiet
tenant, who takes a third of its share, waited behind all others whenever two of its requests came close together. Since
who was idle may be one of the largest requests behind, it is a third of that, and shorter still beside the noisy one,
whose requests are larger. Three seeds, and one day with the lengths of Azure's log.
`classes`: interactive requests alone; batch alone, of twice what the workers can do; both together. What is left for
batch is what batch alone was served less what interactive was.
`prefixes`: Mooncake's published conversations, a part that no constant was chosen on, somewhat more than the workers
can do, by eight tenants who share no prefixes; once first come, first served, once fair.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

from benchmarks.fairness.emulated import emulated
from benchmarks.fairness.runs import Runner, ServiceRecord, fair, first_come
from benchmarks.fairness.shared import ABORTS, shared
from benchmarks.harness import Bar, Measured, Row, main, median_row, quantile
from benchmarks.routing.runs import Outcome
from benchmarks.scheduling.runs import h100
from benchmarks.traces import azure, mooncake

from paceline_core.registry.enums import RequestClass
from paceline_gateway.queueing.queued_request import OUTPUT_WEIGHT
from paceline_simulator.traces import BLOCK, TraceRequest

WORKERS = 4
SEQUENCES = 32
SETTLE_S = 20.0
PROMPT, OUTPUT = 1000, 100
NOISY, TIMES = "noisy", 10
PAGE = 64
INTERACTIVE, BATCH, _ = RequestClass
TENANTS = 8
OFFERED = 168.0
TRACE_WORKERS = 4
TRACE_RATE = 1.4
TRACE_AFTER = 4000
SEEDS = ("1", "2", "3", "azure")
AZURE = "azure"


def measure(quick: bool) -> Measured:
    """All rows; `quick` runs for a quarter of the time, and with one seed of three."""
    share = 4 if quick else 1
    rows: list[Row] = []
    details: dict[str, Any] = {}
    parts = {
        "tenants": partial(tenants, share),
        "classes": partial(classes, share),
        "prefixes": partial(prefixes, share),
        "shared": partial(shared, ABORTS // (8 if quick else 1)),
        "emulated": partial(emulated, quick),
    }
    for name, part in parts.items():
        found, details[name] = part()
        rows += found
    return rows, details


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of prompts and answers: how they are drawn, the mean answer, the longest of both."""

    draw: Callable[[random.Random], tuple[int, int]]
    mean: int
    prompt: int
    output: int


@dataclass(frozen=True, slots=True)
class Days:
    """What came of one seed: p99 waits of the quiet ones without and with the noisy one, and of the busy ones with it.

    `served`: tokens by tenant who always waited; `gap`: the largest between two of them over what VTC allows.
    """

    calm: float
    loud: float
    busy: float
    served: dict[str, float]
    gap: float


def tenants(share: int) -> Measured:
    """One of 20 times the load and ten times the prompts, beside quiet ones."""
    seeds = SEEDS if share == 1 else ("1", AZURE)
    with ProcessPoolExecutor() as pool:
        found = dict(zip(seeds, pool.map(partial(_days, SETTLE_S + 100.0 / share), seeds), strict=True))
    worst = min(jain(days.served.values()) for days in found.values())
    ratios = [days.loud / days.calm for days in found.values()]
    rows = [
        Row("tenants: Jain's index of those who always waited, worst", worst, "", bar=Bar(0.95, True)),
        Row(
            "tenants: largest gap of two who always waited over VTC's bound",
            max(d.gap for d in found.values()),
            "",
            bar=Bar(1.0),
        ),
        Row(
            "tenants: p99 queue wait of quiet ones over that without the noisy one, worst",
            max(ratios),
            "",
            bar=Bar(1.2),
        ),
        median_row("tenants: the same, median", ratios, ""),
        median_row("tenants: p99 queue wait of quiet ones", [days.loud for days in found.values()], "s"),
        median_row("tenants: the same without the noisy one", [days.calm for days in found.values()], "s"),
        median_row("tenants: p99 queue wait of busy ones", [days.busy for days in found.values()], "s"),
    ]
    return rows, {seed: {"calm": d.calm, "loud": d.loud, "gap": d.gap, "served": d.served} for seed, d in found.items()}


def _days(until: float, seed: str) -> Days:
    """The day without the noisy one, and that with it."""
    quiet = {f"quiet-{number}": (2.0, 1) for number in range(6)}
    busy = {f"busy-{number}": (9.0, 1) for number in range(9)}
    before = _run({INTERACTIVE: _calls(quiet | busy, until, seed)}, until)
    after = _run({INTERACTIVE: _calls(quiet | busy | {NOISY: (40.0, TIMES)}, until, seed)}, until)
    always = [tenant for tenant, at in after.idle.items() if at < SETTLE_S]
    return Days(
        quantile(_all(before.waits, quiet), 0.99),
        quantile(_all(after.waits, quiet), 0.99),
        quantile(_all(after.waits, busy), 0.99),
        {tenant: _sum(after.service[tenant]) for tenant in always},
        gap(after, always) / vtc_bound(lengths_of(seed)),
    )


def vtc_bound(lengths: Lengths) -> float:
    """2 max(w_in L_in, w_out M): the longest prompt is the noisy one's, M what all slots may produce at once."""
    return 2 * max(TIMES * lengths.prompt, OUTPUT_WEIGHT * WORKERS * SEQUENCES * lengths.output)


def gap(record: ServiceRecord, who: Sequence[str]) -> float:
    """The most by which one of two was served beyond the other, from any moment to any later one."""
    events = sorted((at, tenant, tokens) for tenant in who for at, tokens in record.service[tenant] if at >= SETTLE_S)
    lows, highs = defaultdict[tuple[str, str], float](float), defaultdict[tuple[str, str], float](float)
    served = dict.fromkeys(who, 0.0)
    for _, tenant, tokens in events:
        served[tenant] += tokens
        for other in who:
            pair = (tenant, other) if tenant < other else (other, tenant)
            ahead = served[pair[0]] - served[pair[1]]
            lows[pair], highs[pair] = min(lows[pair], ahead), max(highs[pair], ahead)
    return max((highs[pair] - lows[pair] for pair in combinations(sorted(who), 2)), default=0.0)


def classes(share: int) -> Measured:
    """Interactive requests beside twice as much batch as there is room for."""
    until = SETTLE_S + 50.0 / share
    urgent, patient = {"urgent": (12.0, 1)}, {"patient": (OFFERED, 1)}
    alone, most = _day(urgent, until), _day(patient, until, BATCH)
    both = _run({INTERACTIVE: _calls(urgent, until), BATCH: _calls(patient, until)}, until)
    ttft = quantile(_all(alone.ttft, urgent), 0.99)
    wait = quantile(_all(both.waits, urgent), 0.99)
    left = _sum(most.service["patient"]) - _sum(both.service["urgent"])
    rows = [
        Row("classes: interactive p99 queue wait over uncontended p99 TTFT", wait / ttft, "", bar=Bar(0.2)),
        Row(
            "classes: batch's share of what interactive leaves",
            _sum(both.service["patient"]) / left,
            "",
            bar=Bar(0.9, True),
        ),
        Row("classes: interactive p99 queue wait", wait, "s", peer=ttft),
        Row("classes: interactive p99 TTFT", quantile(_all(both.ttft, urgent), 0.99), "s", peer=ttft),
        Row(
            "classes: batch offered over what batch alone is served",
            OFFERED * (PROMPT + 2 * OUTPUT) * (until - SETTLE_S) / _sum(most.service["patient"]),
            "",
        ),
    ]
    return rows, {}


def prefixes(share: int) -> Measured:
    """What fairness costs in cached prefixes."""
    spec = h100(BLOCK, 2.0)
    calls = conversations(mooncake(2000 // share, after=TRACE_AFTER))
    calls = [call for call in calls if call.prompt_tokens + call.output_tokens < spec.limits.max_model_len]
    runners: dict[str, Runner] = {"first come, first served": first_come, "fair": fair}
    with ProcessPoolExecutor() as pool:
        outcomes = pool.map(partial(_traced, calls), runners.values())
        found = dict(zip(runners, outcomes, strict=True))
    plain, shared_out = found["first come, first served"], found["fair"]
    rows = [
        Row(
            "prefixes: hit rate of fair queues over plain ones",
            shared_out.hit_rate / plain.hit_rate,
            "",
            bar=Bar(0.9, True),
        ),
        Row("prefixes: hit rate, fair", shared_out.hit_rate, "", peer=plain.hit_rate),
        Row("prefixes: mean TTFT, fair", shared_out.mean, "s", peer=plain.mean),
    ]
    return rows, {
        name: {"hit_rate": o.hit_rate, "ttft_mean": o.mean, "ttft_p99": o.quantile(0.99)} for name, o in found.items()
    }


def _traced(calls: Sequence[TraceRequest], runner: Runner) -> Outcome:
    return runner({INTERACTIVE: calls}, h100(BLOCK, 2.0), TRACE_WORKERS)[1]


def conversations(calls: Sequence[TraceRequest]) -> list[TraceRequest]:
    """Calls of tenants: those with the same beginning, past the system's prompt, are the same tenant's."""
    tenants = (f"tenant-{call.blocks[min(1, len(call.blocks) - 1)] % TENANTS}" for call in calls)
    return [replace(call, at=call.at / TRACE_RATE, tenant=tenant) for call, tenant in zip(calls, tenants, strict=True)]


def jain(values: Iterable[float]) -> float:
    """1 when all are served alike, 1/n when one has everything."""
    found = list(values)
    return sum(found) ** 2 / (len(found) * sum(value**2 for value in found))


def _day(who: dict[str, tuple[float, int]], until: float, name: RequestClass = INTERACTIVE) -> ServiceRecord:
    return _run({name: _calls(who, until)}, until)


def _run(calls: Mapping[RequestClass, Sequence[TraceRequest]], until: float) -> ServiceRecord:
    return fair(calls, h100(PAGE, sequences=SEQUENCES), WORKERS, until)[0]


def _calls(who: dict[str, tuple[float, int]], until: float, seed: str = "") -> list[TraceRequest]:
    """Poisson arrivals of tenants with a rate and times the usual prompt; none shares anything with another."""
    lengths, made = lengths_of(seed), []
    for tenant, (rate, times) in who.items():
        draws, at = random.Random(f"{seed} {tenant}"), 0.0
        while (at := at + draws.expovariate(rate)) < until:
            prompt, output = lengths.draw(draws)
            made.append(TraceRequest(at, prompt * times, output, tenant=tenant))
    return sorted(made, key=lambda call: call.at)


def lengths_of(seed: str) -> Lengths:
    """They vary by half, or are those of Azure's conversations."""
    if seed == AZURE:
        logged = [(c.prompt_tokens, c.output_tokens) for c in azure(5000) if c.prompt_tokens <= 4 * PROMPT]
        outputs = [output for _, output in logged]
        return Lengths(lambda draws: draws.choice(logged), sum(outputs) // len(outputs), 4 * PROMPT, max(outputs))

    def draw(draws: random.Random) -> tuple[int, int]:
        return draws.randint(PROMPT // 2, PROMPT * 3 // 2), draws.randint(OUTPUT // 2, OUTPUT * 3 // 2)

    return Lengths(draw, OUTPUT, PROMPT * 3 // 2, OUTPUT * 3 // 2)


def _all(by_tenant: dict[str, list[tuple[float, float]]], who: Iterable[str]) -> list[float]:
    return [value for tenant in who for at, value in by_tenant[tenant] if at >= SETTLE_S]


def _sum(values: Iterable[tuple[float, float]]) -> float:
    return sum(value for at, value in values if at >= SETTLE_S)


if __name__ == "__main__":
    main("fairness", measure)
