"""The simulator against a whole local stack: 20 minutes of `paceline up` with emulated workers, under policy slo.

`paceline bench` offers the burst profile to `examples/burst.yaml` (one to four replicas), seed by seed; the simulator
gets the same arrivals, lengths, service and engine. One constant comes from each run: how long a start takes, from the
rise of the desired replicas to the ready worker, since processes start slower than the emulated cold start.

Replica time counts starting and draining workers, as the bench sees them once a second. Attainment is the share of
requests that met both targets. The simulator has no API process: its TTFT lacks the time to tokenize a prompt. A run
in which emulated steps ended late, or requests were sent late, measured the machine; `void` says so, and it is to be
repeated at a lower load.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import inf
from statistics import median
from typing import Any

import yaml
from benchmarks.burst import MANIFEST, Document, bench
from benchmarks.harness import Bar, Measured, Row
from benchmarks.simulator.emulated import engine

from paceline_cli.bench.profiles import BenchOptions, ProfileName, profile_of, schedule
from paceline_core.kube import ObjectKey, ScaleTarget
from paceline_core.launch.build import Binding, worker_config
from paceline_core.objects import InferenceService, ResolvedService, resolve
from paceline_core.registry.enums import RequestClass
from paceline_simulator.cluster import PoolPlan, StartTimes
from paceline_simulator.policies import policy_of
from paceline_simulator.results import LatencyLimits
from paceline_simulator.simulation import RunPlan, ServicePlan, Simulation
from paceline_simulator.traces import TraceRequest
from paceline_workers.config import EngineConfig

DURATION, QUICK_DURATION = "300s,300s,600s", "60s,120s,120s"
SEEDS = (1, 2, 3)
REPLICA_TIME, STARTS, ATTAINMENT = Bar(5.0), Bar(1.0), Bar(2.0)


def measure(quick: bool) -> Measured:
    """Three rows a seed: the differences of replica time, starts and attainment."""
    rows: list[Row] = []
    details: dict[str, Any] = {}
    duration = QUICK_DURATION if quick else DURATION
    for seed in SEEDS[:1] if quick else SEEDS:
        report = bench(MANIFEST.read_text(), duration, "--seed", str(seed))
        observed = facts(report)
        start_s = started_within(report["observation"]["replicas"])
        found = simulated(service(), duration, seed, start_s)
        rows += compared(f"local stack, seed {seed}", observed, found)
        details[f"seed {seed}"] = {
            "observed": observed,
            "simulated": found,
            "start_s": start_s,
            "void": report["void_because"],
            "steps_late_p99": report["observation"]["emulation"]["p99_at_most"],
        }
    return rows, details


def compared(name: str, observed: Mapping[str, float], found: Mapping[str, float]) -> list[Row]:
    replica_time = 100 * abs(found["replica_s"] / observed["replica_s"] - 1)
    return [
        Row(f"{name}: replica time", replica_time, "%", bar=REPLICA_TIME),
        Row(f"{name}: starts", abs(found["starts"] - observed["starts"]), "", bar=STARTS),
        Row(f"{name}: attainment", 100 * abs(found["attainment"] - observed["attainment"]), "points", bar=ATTAINMENT),
    ]


def facts(report: Document) -> dict[str, float]:
    """Replica seconds, starts and attainment of a bench report."""
    samples, duration = report["observation"]["replicas"], report["overall"]["duration"]
    replica_s = 0.0
    for sample, following in pairwise([*samples, {"at": duration}]):
        seconds = min(following["at"], duration) - max(sample["at"], 0.0)
        replica_s += max(seconds, 0.0) * (sample["ready"] + sample["starting"] + sample["draining"])
    return {
        "replica_s": replica_s,
        "starts": rises([sample["desired"] for sample in samples]),
        "attainment": report["overall"]["goodput_ratio"],
    }


def rises(desired: Sequence[int]) -> int:
    """Replicas that were ordered."""
    return sum(max(after - before, 0) for before, after in pairwise(desired))


def started_within(samples: Sequence[Mapping[str, Any]]) -> float:
    """Seconds from an order to as many ready replicas, the median of a run. Raises ValueError if there was no order."""
    found: list[float] = []
    for place, (before, after) in enumerate(pairwise(samples), 1):
        if after["desired"] > before["desired"]:
            ready = (later["at"] for later in samples[place:] if later["ready"] >= after["desired"])
            found.append(next(ready, inf) - after["at"])
    if not found:
        raise ValueError("the run started no replica")
    return median(found)


def service() -> ResolvedService:
    """The service of the example."""
    documents = yaml.safe_load_all(MANIFEST.read_text())
    return resolve(InferenceService.model_validate(next(d for d in documents if d["kind"] == "InferenceService")))


def simulated(spec: ResolvedService, duration: str, seed: int, start_s: float) -> dict[str, float]:
    """The same facts from the simulator."""
    profile = profile_of(BenchOptions(ProfileName.BURST, duration=duration))
    requests = [TraceRequest(a.at, a.prompt_tokens, a.output_tokens) for a in schedule(profile, seed)]
    (pool,) = spec.pools
    config = worker_config(spec, pool, Binding("", "127.0.0.1", 0, "", "", "", 0))["engine"]
    start = StartTimes.of(start_s, spread=0.0)
    target = ScaleTarget(ObjectKey.parse(spec.key), pool.name)
    plan = PoolPlan(target, engine(EngineConfig.model_validate(config)), start)
    arrivals = {RequestClass.INTERACTIVE: requests}
    made = ServicePlan(spec, (plan,), arrivals, policy_of("slo", {pool.name: start_s}), {pool.name: 1})
    targets = {t.metric: t.seconds for t in spec.classes[RequestClass.INTERACTIVE].targets}
    limits = LatencyLimits(targets["ttft"], targets["tpot"], inf)
    result = Simulation(RunPlan((made,), score=(0.0, profile.duration), latency=limits)).run()
    return {
        "replica_s": result.gpu_s[spec.key],
        "starts": rises([moment.desired for moment in result.timeline]),
        "attainment": result.attainment(),
    }
