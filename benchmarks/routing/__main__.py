"""Routing policies by virtual clock: how much is found cached, how even the work is, how soon the first token comes.

Eight emulated H100 with Llama 3.1 8B and an fp8 KV cache, and the engine's own scheduler in each, take 2,000 calls a
run. The constants of `pace` (guard, tolerance) were chosen on the first 700 calls of both of Mooncake's logs; what is
measured here are later parts, which nothing was chosen on, at the rates that were used then (2.2 and 1.6 times as fast
as logged). Azure's conversation log, which nothing was chosen on either, shares no prefixes: there only the work can be
spread. `hot` is one document of 16,384 tokens in front of six of ten prompts, for the guard; its own seed 1 was known.

`conversation` is run on five parts, nearly all of the log, and `hot` with three seeds: a row is their median with its
spread, but a hit rate is that of all calls together, since one part's ratio moves by some percent with the least change
of arrivals (the first three parts had a median of 0.944 for three gateways over one; that is why there are five), and
the guard's row is the worst of them. "One cache" is what a single least-recently-used cache of all
workers' pages would have found, which nobody who must also share the work out can reach. Three gateways do not talk to
each other; each hears the workers. `change`: the first worker is drained after a third of the time, and a new one comes
after two.

What made three gateways as good as one is that workers tell the beginnings under way, not only those that are cached.
Tried, and found less: counting a request's own work twice, a tolerance among equals of 2 or 30 % of the estimate, and
the emptier of two workers by rendezvous (a tenth fewer hits). Where everybody has the document soon, as in `hot`,
nothing beats taking turns: `pace` places by rendezvous whatever is equal within the tolerance, which is as good as at
random there, and pays for it in the mean. In a minute one prompt of 100,000 tokens is a tenth of all that a worker can
do, so the worst minute is uneven with any policy.
"""

import random
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, get_args

from benchmarks.harness import Bar, Measured, Row, main, median_row
from benchmarks.routing.policies import Name
from benchmarks.routing.runs import Outcome, RoutingVariant, simulate
from benchmarks.scheduling.runs import h100
from benchmarks.traces import azure, mooncake

from paceline_simulator.engine import EngineSpec
from paceline_simulator.traces import BLOCK, TraceRequest

WORKERS = 8
GATEWAYS = 3
FP8 = 2.0
"""Times the pages of a cache in bf16."""
CALLS, QUICK_CALLS = 2000, 200
KNOWN = 700
"""Calls at the beginning of a log that constants were chosen on."""
FIRST, EVERY_CALLS, PARTS = 1000, 2100, 5
"""Parts of the conversation log: where the first begins, how far apart they are. Together nearly all of the rest."""
HOT_BLOCKS = 32
HOT_RATE = 40.0
OURS, PLAIN, SEVERAL = RoutingVariant("pace"), RoutingVariant("round_robin"), RoutingVariant("pace", GATEWAYS)
EVERY = (*map(RoutingVariant, get_args(Name)), SEVERAL)
SOME = (OURS, PLAIN, RoutingVariant("prefix"), SEVERAL)
GUARD, HITS = Bar(1.25), Bar(0.95, True)


@dataclass(frozen=True, slots=True)
class Sample:
    """One part of a trace, or one seed. `kind` is a trace's name; `rate` times as fast as logged."""

    kind: str
    place: int
    rate: float
    count: int

    def calls(self, spec: EngineSpec) -> list[TraceRequest]:
        """Those that fit into the machine's context."""
        if self.kind == "hot":
            return hot(self.count, self.place)
        found = azure(self.count) if self.kind == "azure" else mooncake(self.count, self.kind, self.place)
        return [call for call in found if call.prompt_tokens + call.output_tokens < spec.limits.max_model_len]


Run = tuple[Sample, RoutingVariant]


def runs(count: int, *, quick: bool) -> list[Run]:
    """Every policy on one part of the conversations, and on all else what the rows need."""
    parts = [Sample("conversation", FIRST + EVERY_CALLS * part, 2.2, count) for part in range(PARTS)]
    made = [(parts[0], way) for way in EVERY]
    made += [(part, way) for part in parts[1:] for way in (OURS, PLAIN, SEVERAL)]
    made += [(Sample("synthetic", KNOWN + 1200, 1.6, count), way) for way in SOME]
    made += [(Sample("hot", seed, 1.0, count), way) for seed in range(1, 4) for way in SOME]
    made += [
        (Sample("azure", 0, 16.0, count), way)
        for way in (*SOME, RoutingVariant("least_requests"), RoutingVariant("power_of_two"))
    ]
    one_each = {sample.kind: sample for sample, _ in reversed(made)}
    return [run for run in made if run[0] in one_each.values()] if quick else made


def measure(quick: bool) -> Measured:
    """All rows; `quick` takes one small part of each trace. Runs share the machine's cores."""
    count = QUICK_CALLS if quick else CALLS
    made = runs(count, quick=quick)
    with ProcessPoolExecutor() as pool:
        changed = pool.submit(change, made[0][0])
        outcomes = dict(zip(made, pool.map(run, made), strict=True))
        moved = changed.result()
    rows: list[Row] = []
    for kind in dict.fromkeys(sample.kind for sample, _ in made):
        found = {key: outcome for key, outcome in outcomes.items() if key[0].kind == kind}
        rows += [*claims(kind, found), *policies(kind, found)]
    return [*rows, *stability(outcomes[made[0][0], OURS], moved)], {
        f"{sample.kind} {sample.place}, {_label(way)}": _facts(outcome) for (sample, way), outcome in outcomes.items()
    }


def run(which: Run) -> Outcome:
    """One run, in a process of its own."""
    sample, way = which
    spec = h100(BLOCK, FP8)
    return simulate(sample.calls(spec), spec, way, WORKERS, sample.rate)


def change(sample: Sample) -> Outcome:
    """The same calls while one worker leaves and another comes."""
    last = sample.calls(h100(BLOCK, FP8))[-1].at / sample.rate
    return run((sample, RoutingVariant("pace", leaves=last / 3, joins=last * 2 / 3)))


def hot(count: int, seed: int) -> list[TraceRequest]:
    """Prompts of 512 to 2,048 tokens, six of ten behind the same document; arrivals are a Poisson process."""
    draws, at, calls = random.Random(seed), 0.0, []
    for number in range(count):
        at += draws.expovariate(HOT_RATE)
        own = tuple(range(1000 + 4 * number, 1000 + 4 * number + draws.randint(1, 4)))
        blocks = (*range(HOT_BLOCKS), *own) if draws.random() < 0.6 else own
        calls.append(TraceRequest(at, len(blocks) * BLOCK, draws.randint(20, 400), blocks))
    return calls


def one_cache(calls: Sequence[TraceRequest], pages: int) -> float:
    """The hit rate of one cache of so many pages that everything goes through in order."""
    cache: OrderedDict[int, None] = OrderedDict()
    found = total = 0
    for call in calls:
        known = next((place for place, block in enumerate(call.blocks) if block not in cache), len(call.blocks))
        found, total = found + min(known * BLOCK, call.prompt_tokens), total + call.prompt_tokens
        for block in reversed(call.blocks):
            cache[block] = None
            cache.move_to_end(block)
        while len(cache) > pages:
            cache.popitem(last=False)
    return found / total


def claims(kind: str, found: Mapping[Run, Outcome]) -> list[Row]:
    """What has a bar, over all samples of a trace."""
    ours, several, plain = (_of(found, way) for way in (OURS, SEVERAL, PLAIN))
    rows = [
        Row(f"{kind}: work of the busiest worker over the mean, worst", max(o.imbalance for o in ours), "", bar=GUARD),
        Row(f"{kind}: the same, three gateways", max(o.imbalance for o in several), "", bar=GUARD),
        median_row(f"{kind}: mean TTFT over round robin", _ratios("mean", ours, plain), "", Bar(1.0)),
        median_row(
            f"{kind}: p99 TTFT over round robin", [_p99(o) / _p99(p) for o, p in zip(ours, plain, strict=True)], ""
        ),
        median_row(f"{kind}: mean TTFT of three gateways over one", _ratios("mean", several, ours), ""),
    ]
    if kind == "azure":  # no prefixes
        return rows
    ratios = _ratios("hit_rate", several, ours)
    shared = Row(
        f"{kind}: hit rate of three gateways over one",
        _hits(several) / _hits(ours),
        "",
        spread=max(ratios) - min(ratios),
        bar=HITS,
    )
    return [shared, *rows]


def policies(kind: str, found: Mapping[Run, Outcome]) -> Iterable[Row]:
    """How each policy did, on the first sample; the peers are round robin's TTFT and one cache's hits."""
    (sample, _), *_ = found
    spec = h100(BLOCK, FP8)
    bound, plain = one_cache(sample.calls(spec), spec.pages * WORKERS), found[sample, PLAIN]
    for (which, way), outcome in found.items():
        if which == sample:
            yield Row(f"{kind}, {_label(way)}: hit rate", outcome.hit_rate, "", peer=bound or None)
            yield Row(f"{kind}, {_label(way)}: mean TTFT", outcome.mean, "s", peer=plain.mean)
            yield Row(f"{kind}, {_label(way)}: p99 TTFT", _p99(outcome), "s", peer=_p99(plain))


def stability(still: Outcome, moved: Outcome) -> list[Row]:
    """What it costs that one of eight workers is replaced."""
    return [
        Row("change: hit rate over that without", moved.hit_rate / still.hit_rate, "", bar=Bar(0.85, True)),
        Row("change: mean TTFT over that without", moved.mean / still.mean, ""),
        Row("change: calls answered over those that came", len(moved.ttft) / len(still.ttft), "", bar=Bar(1.0, True)),
    ]


def _of(found: Mapping[Run, Outcome], way: RoutingVariant) -> list[Outcome]:
    return [outcome for (_, which), outcome in found.items() if which == way]


def _hits(outcomes: Sequence[Outcome]) -> float:
    return sum(outcome.cached for outcome in outcomes) / sum(outcome.prompts for outcome in outcomes)


def _ratios(name: str, these: Sequence[Outcome], those: Sequence[Outcome]) -> list[float]:
    return [getattr(this, name) / getattr(that, name) for this, that in zip(these, those, strict=True)]


def _p99(outcome: Outcome) -> float:
    return outcome.quantile(0.99)


def _label(way: RoutingVariant) -> str:
    return way.policy if way.gateways == 1 else f"{way.policy}, {way.gateways} gateways"


def _facts(outcome: Outcome) -> dict[str, Any]:
    return {
        "calls": len(outcome.ttft),
        "hit_rate": outcome.hit_rate,
        "ttft_mean": outcome.mean,
        "ttft_p50": outcome.quantile(0.5),
        "ttft_p90": outcome.quantile(0.9),
        "ttft_p99": _p99(outcome),
        "imbalance": outcome.imbalance,
        "worst_window": outcome.worst_window,
        "in_steps": outcome.utilization,
        "seconds": outcome.seconds,
    }


if __name__ == "__main__":
    main("routing", measure)
