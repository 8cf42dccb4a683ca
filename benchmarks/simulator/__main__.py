"""The simulator against itself and against logs: leaps equal steps, CPU time of a request, published engine logs.

`leaps`: every request's times, tokens and cache hits, and all evictions, are compared between a run that leaps over
steps and one that takes each. CPU time is the process's own, of one core, with all parts: gateway, engines, cluster,
autoscaler. It depends on what else the machine does, so the time of one scheduler step with 13 decodes stands beside
it; the bars were set where that took 35 us.

`log`: see `calibration`. A row's value is the error of a quantity over the requests that were held out.
"""

import argparse
import gc
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, NoReturn

from benchmarks.harness import Bar, Measured, Row, quantile, report_parts, report_section
from benchmarks.simulator import blis, calibration, cpu_worker, emulated, fluid, stack, what_if
from benchmarks.simulator.cells import LIMITS, STEP_TIME, Cell, plan

from paceline_core.clock import SystemClock
from paceline_simulator.results import SimulationResult
from paceline_simulator.simulation import Simulation
from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.scheduling import Request, SampledToken, Scheduler
from paceline_workers.messages import Sampling

EQUAL = Bar(0.0)
MS = {"conv": Bar(1.5), "code": Bar(1.5), "mooncake": Bar(5.0)}
REPLICAS = {"conv": 7, "code": 9, "mooncake": 14}
TIMES = {"conv": 6, "code": 6, "mooncake": 2}
REAL_TIME = Bar(20.0, at_least=True)
SECTIONS = {
    "blis": blis.measure,
    "emulated": emulated.measure,
    "cpu-worker": cpu_worker.measure,
    "stack": stack.measure,
    "fluid": fluid.measure,
    "what-if": what_if.measure,
}
SINGLE, P90, DP2 = Bar(1.5), Bar(3.0), Bar(12.0)


def parts(quick: bool) -> Iterator[Measured]:
    """Rows in parts, since all of them take half an hour; `quick` takes a minute of each log, and one engine's log."""
    gc.freeze()
    gc.disable()
    span = 60.0 if quick else 300.0
    details: dict[str, Any] = {}
    yield [_step_row()], details
    for log in REPLICAS:
        row, details[log] = _leaps(log, 0.4 * span)
        yield [row, _cpu(log, span)], details
        gc.collect()
    yield [_real_time(span)], details
    for engine in calibration.LOGS[:1] if quick else calibration.LOGS:
        rows, details[engine.name] = _log(engine)
        yield rows, details


def _step_row() -> Row:
    """The CPU time of one step and commit with 13 decodes: what this machine is worth at the moment."""
    core = Scheduler(KVCacheManager(40_000, LIMITS.page_tokens), LIMITS)
    core.learn(STEP_TIME)
    for number in range(13):
        tokens = [1000 + number] * 500
        core.submit(Request(f"r{number}", 500, tokens, 4000, Sampling(temperature=0.0), 0.0))
    sample = SampledToken(2)
    for number in range(1100):
        if number == 100:
            begun = time.process_time()
        step = core.step(0.02 * number)
        core.commit(step, [sample for chunk in step.chunks if chunk.samples], 0.02 * number + 0.01)
    return Row("scheduler step with 13 decodes", (time.process_time() - begun) * 1e3, "us CPU", peer=35.0)


def _leaps(log: str, span_s: float) -> tuple[Row, dict[str, Any]]:
    requests = Cell(log, TIMES[log], span_s).requests()
    runs = [Simulation(plan(requests, REPLICAS[log], REPLICAS[log], leaps=leaps)) for leaps in (True, False)]
    leapt, stepped = (run.run() for run in runs)
    differing = sum(one != other for one, other in zip(leapt.requests, stepped.requests, strict=True))
    evictions = [sum(engine.memory.pool.evicted for engine in run.cluster.engines.values()) for run in runs]
    row = Row(
        f"{log}: requests or evictions that leaps change", differing + abs(evictions[0] - evictions[1]), "", bar=EQUAL
    )
    steps = sum(engine.scheduler.counters.steps for engine in runs[0].cluster.engines.values())
    return row, {"requests": len(requests), "steps": steps, "evictions": evictions[0], **_facts(leapt)}


def _cpu(log: str, span_s: float) -> Row:
    requests = Cell(log, TIMES[log], span_s).requests()
    seconds, _ = _timed(requests, REPLICAS[log])
    return Row(f"{log}: CPU time of a request, all parts", seconds / len(requests) * 1e3, "ms", bar=MS[log])


def _real_time(span_s: float) -> Row:
    seconds, _ = _timed(Cell("conv", 7, span_s).requests(), 20)
    return Row("conv: simulated over CPU time, 20 replicas, 40 requests/s", span_s / seconds, "x", bar=REAL_TIME)


def _timed(requests: list[Any], replicas: int) -> tuple[float, SimulationResult]:
    made = Simulation(plan(requests, replicas, replicas))
    begun = time.process_time()
    result = made.run()
    return time.process_time() - begun, result


def _log(engine: calibration.LoggedEngine) -> Measured:
    """Errors in percent over the held-out requests; the last rows are for a fit on the first half of the arrivals."""
    logged, rows, details = calibration.read(engine.name), [], {}
    p90, mean = (DP2, None) if engine is calibration.LOGS[-1] else (P90, SINGLE)
    random = calibration.halves(logged)
    first = [number < len(logged) // 2 for number in range(len(logged))]
    for kind, known in (("", random), (", fitted on the first half of arrivals", first)):
        model = calibration.fit(logged, partial(calibration.vllm, engine), engine.start, known)
        held = [not use for use in known]
        errors = _errors(logged, calibration.predict(logged, calibration.vllm(engine, model)), held)
        bars = {} if kind else {"TPOT mean": mean, "E2E mean": mean, "TTFT p90": p90}
        rows += [Row(f"{engine.name}: {what}{kind}", abs(e), "%", bar=bars.get(what)) for what, e in errors.items()]
        details[kind.strip(", ") or "fitted on half of the requests"] = {"model": model.model_dump(), **errors}
    return rows, details


def _errors(
    logged: list[calibration.LoggedRequest], found: list[calibration.LoggedRequest], held: list[bool]
) -> dict[str, float]:
    pairs = [(a, b) for a, b, use in zip(found, logged, held, strict=True) if use]
    ttft = [[pair[side].ttft for pair in pairs] for side in (0, 1)]
    return {
        "TPOT mean": calibration.percent(sum(a.tpot for a, _ in pairs), sum(b.tpot for _, b in pairs)),
        "E2E mean": calibration.percent(sum(a.e2e for a, _ in pairs), sum(b.e2e for _, b in pairs)),
        "TTFT p90": calibration.percent(quantile(ttft[0], 0.9), quantile(ttft[1], 0.9)),
        "TTFT p50": calibration.percent(quantile(ttft[0], 0.5), quantile(ttft[1], 0.5)),
    }


def _facts(result: SimulationResult) -> dict[str, Any]:
    ttft = [request.ttft for request in result.requests if request.ttft is not None]
    return {
        "attainment": result.attainment(),
        "hit_rate": result.hit_rate(),
        "ttft_mean": sum(ttft) / len(ttft),
        "ttft_p99": quantile(ttft, 0.99),
        "gpu_s": result.gpu_s,
        "seconds": result.seconds,
    }


def main() -> NoReturn:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulator")
    parser.add_argument("--quick", action="store_true", help="shorter runs, and one engine's log")
    parser.add_argument("section", nargs="?", choices=SECTIONS, help="only this comparison; it is in no other run")
    options = parser.parse_args()
    quick, suffix = options.quick, ".quick" if options.quick else ""
    if options.section:
        report_section("simulator", options.section, lambda: SECTIONS[options.section](quick), SystemClock(), suffix)
    report_parts("simulator", parts(quick), SystemClock(), suffix)


if __name__ == "__main__":
    main()
