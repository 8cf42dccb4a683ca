"""A plan as lines: what was asked, the plan in words, its alternatives as a table, and the way to it."""

from collections.abc import Iterator
from math import inf

from paceline_cli.ui.rows import table
from paceline_core.units import brief, counted
from paceline_planner.candidates import PlannedLoad, PlannedPool
from paceline_planner.goodput import LatencyPromise
from paceline_planner.plan import Plan
from paceline_planner.shapes import ModelShape

_LIMITS = {
    "TTFT": "first tokens wait for others' prompts (TTFT)",
    "TPOT": "steps are as long as TPOT allows",
    "step tokens": "steps are full (stepTokens)",
    "slots": "all slots are taken (maxSeqs)",
    "KV cache": "the KV cache is full",
}


def plan_lines(plan: Plan) -> Iterator[str]:
    yield model_line(plan.shape)
    yield load_line(plan.load)
    yield ""
    if plan.chosen is not None:
        yield from _chosen(plan.chosen)
        if plan.nearest is not None:
            yield f"  mostly idle, since an idle replica is hardly faster than promised; {_kept(plan.nearest)}"
        yield ""
        yield from table(_header(plan.load.promise), [_cells(one) for one in (plan.chosen, *plan.alternatives)])
    else:
        yield from nearest_lines(plan)
    yield ""
    rows = [(a.accelerator, a.question, "yes" if a.passed else "no", a.text) for a in plan.decisions]
    yield from table(("ACCELERATOR", "QUESTION", "ANSWER", ""), rows)


def model_line(shape: ModelShape) -> str:
    """`llama-3.3-70b: 70.6B parameters, 141.1 GB of weights, 320 KiB of KV cache a token`."""
    weights = shape.quantization.name if shape.quantization else shape.weight_dtype.value
    active = shape.active_matrices + shape.vocabulary
    mixture = f", {active / 1e9:.1f}B for each token" if shape.experts else ""
    size = (
        f"{shape.parameters / 1e9:.1f}B parameters{mixture}, {shape.weight_bytes / 1e9:.1f} GB of weights ({weights})"
    )
    return f"{shape.name}: {size}, {shape.kv_bytes_per_token / 1024:.0f} KiB of KV cache a token"


def load_line(load: PlannedLoad) -> str:
    lengths = load.lengths
    cached = f", {lengths.cached:.0%} cached" if lengths.cached else ""
    sizes = f"{lengths.prompt:,.0f} prompt{cached} and {lengths.output:,.0f} output tokens (cv {lengths.prompt_cv:g})"
    return f"{figures(load.rate, 6)} requests/s of {sizes}, promised {promise_text(load.promise)}"


def figures(value: float, digits: int) -> str:
    """So many significant digits, or all before the point: `24.4`, `12,300`."""
    return f"{value:,.0f}" if value >= 10**digits - 0.5 else f"{value:.{digits}g}"


def promise_text(promise: LatencyPromise) -> str:
    """`ttft p95 500ms, tpot p95 50ms`."""
    extra = f" + {brief(promise.per_prompt_token * 1000)} per 1k prompt tokens" if promise.per_prompt_token else ""
    parts = [
        f"{metric} p{quantile * 100:g} {brief(limit)}{more}"
        for metric, quantile, limit, more in (
            ("ttft", promise.ttft_quantile, promise.ttft_s, extra),
            ("tpot", promise.tpot_quantile, promise.tpot_s, ""),
            *((one.metric, one.quantile, one.seconds, extra * (one.metric == "ttft")) for one in promise.also),
        )
        if limit < inf
    ]
    return ", ".join(parts)


def _chosen(one: PlannedPool) -> Iterator[str]:
    cost = "of unknown price" if one.dollars_per_hour is None else f"${one.dollars_per_hour:.2f} an hour"
    yield f"{counted(one.replicas, 'replica')} of {one.replica.name}, {cost}"
    yield f"  goodput {figures(one.goodput, 3)} requests/s: {one.pool.usable:.0%} of what the replicas sustain"
    yield f"  beyond it {_LIMITS[one.pool.limit]}"


def _header(promise: LatencyPromise) -> tuple[str, ...]:
    ttft, tpot = f"TTFT p{promise.ttft_quantile * 100:g}", f"TPOT p{promise.tpot_quantile * 100:g}"
    return ("REPLICAS", "OF", ttft, tpot, "GOODPUT", "LIMIT", "$/HOUR", "$/1M TOKENS", "TOKENS/S/W")


def _cells(one: PlannedPool) -> tuple[str, ...]:
    price, each, watts = one.dollars_per_hour, one.dollars_per_million_tokens, one.tokens_per_s_per_watt
    return (
        str(one.replicas),
        one.replica.name,
        brief(one.ttft_s),
        brief(one.tpot_s),
        f"{figures(one.goodput, 3)}/s",
        one.pool.limit,
        "" if price is None else f"{price:.2f}",
        "" if each is None else figures(each, 2),
        "" if watts is None else figures(watts, 2),
    )


def nearest_lines(plan: Plan) -> Iterator[str]:
    """Lines that tell that nothing keeps the promise, and what would be kept."""
    if plan.nearest is not None:
        yield "nothing keeps this promise"
        yield f"  the nearest one: {_kept(plan.nearest)}"
    elif any(answer.question == "fits" and answer.passed for answer in plan.decisions):
        yield "nothing carries the rate: see below why"
    else:
        yield "nothing fits: see below what is missing"


def _kept(nearest: PlannedPool) -> str:
    """`3 replicas of 8 h200 (tensor 8) would keep ttft p95 940ms, $119.52 an hour`."""
    cost = "" if nearest.dollars_per_hour is None else f", ${nearest.dollars_per_hour:.2f} an hour"
    replicas = f"{counted(nearest.replicas, 'replica')} of {nearest.replica.name}"
    return f"{replicas} would keep {promise_text(nearest.load.promise)}{cost}"
