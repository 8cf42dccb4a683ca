"""The simulator against BLIS (github.com/inference-sim/inference-sim at f90a1e3a), request by request.

`PACELINE_BLIS` names a checkout in which `go build -o blis main.go` was run. Both sides replay Azure's conversations
with BLIS's default step-time formula and coefficients (`trained-physics`, one H100, Llama 3.1 8B).

Set alike, because the source of BLIS (`sim/{batch_formation,simulator,event}.go`) says so:

    batch       vLLM's: 2,048 tokens a step; decodes first, then the prompt cut short in the step before, then waiting
                ones as they came, each cut at the end of the budget; no cap on a chunk, no TPOT target
    loop        a step begins when the one before it ends, and sees every request that has arrived by then
    first token at the end of the step that computes the prompt's last token; the answer ends with its last step
    routing     round robin, in the order of arrival; no request waits outside the engines
    times       whole ticks: a step's seconds are truncated, as are arrivals. BLIS's tick is a microsecond, here it is
                2^-20 s, of which floats hold exact sums
    memory      65,536 blocks of 16 tokens and 1,024 slots: more than is ever used. BLIS forgets a preempted request's
                output and produces it again, production keeps it, so nothing may be preempted
    overheads   BLIS's constants for queueing and detokenizing (alpha) are 0: they stand for the API process
    prefixes    BLIS's cache cannot be switched off; no two prompts share a block

What cannot be set alike: a request that arrives in the very tick in which a step ends joins BLIS's next step, but here
the one after it if that step began before the arrival was scheduled. Then later requests at that replica differ too,
mostly by a few ticks. It happens to about one request in ten thousand; the details count all that differ.
"""

import csv
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from benchmarks.harness import Bar, Measured, Row, quantile
from benchmarks.routing.policies import BaselinePolicy, round_robin
from benchmarks.scheduling.policies import VLLM
from benchmarks.simulator.cells import TARGET, service, trace

from paceline_core.registry.enums import RequestClass
from paceline_core.wire import StepTime
from paceline_planner.steptime import StepWork
from paceline_simulator.cluster import PoolPlan, StartTimes
from paceline_simulator.engine import EngineSpec
from paceline_simulator.policies import policy_of
from paceline_simulator.simulation import RunPlan, ServicePlan, Simulation
from paceline_simulator.traces import TraceRequest
from paceline_simulator.workloads import copies
from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.scheduling import Scheduler, SchedulerLimits, StepPlan

VARIABLE = "PACELINE_BLIS"
MODEL, GPU = "meta-llama/llama-3.1-8b-instruct", "H100"
TICK = 2.0**-20
BLOCK_TOKENS, BLOCKS = 16, 65_536
LIMITS = SchedulerLimits(
    max_model_len=131_072, vocab_size=1 << 31, page_tokens=BLOCK_TOKENS, max_seqs=1024, step_tokens=2048
)
UNKNOWN = StepTime(base=0.0, prefill=0.0)
"""The engine predicts nothing, so that its steps have no limit in seconds."""
COPIES = {"moderate": 3, "high": 6}
"""Copies of Azure's log for each replica: some 16 and 32 requests a second."""
REQUESTS, QUICK_REQUESTS = 2000, 400
SAME = Bar(1.0)


@dataclass(frozen=True, slots=True)
class BlisWork(StepWork):
    """`prompts` computed in the step, and over them the sum of tokens * (length of the prompt + tokens / 2)."""

    prompts: int = 0
    pairs: float = 0.0


class BlisPlan(StepPlan):
    """A plan whose work has what BLIS's formula asks for."""

    @cached_property
    def work(self) -> BlisWork:
        work = StepPlan(self.chunks).work
        prefills = [chunk for chunk in self.chunks if chunk.start < chunk.request.prompt_len]
        pairs = sum(chunk.count * (chunk.request.prompt_len + chunk.count / 2) for chunk in prefills)
        return BlisWork(work.prefill_tokens, work.context, work.sequences, work.kv_tokens, len(prefills), pairs)


class BlisScheduler(Scheduler):
    """vLLM's order, admission and victims."""

    def __init__(self, memory: KVCacheManager, limits: SchedulerLimits) -> None:
        forecast = VLLM.forecast(limits.max_model_len, limits.page_tokens)
        super().__init__(memory, limits, VLLM.policy(), choose=VLLM.choose, forecast=forecast)

    def step(self, now: float) -> StepPlan:
        plan = super().step(now)
        return BlisPlan(plan.chunks, plan.wake, plan.window, plan.copies, plan.visible)


@dataclass(frozen=True, slots=True)
class TrainedPhysics:
    """A `StepClock`: BLIS's `trained-physics` for a dense model on one device, in its order of operations.

    `beta`: its eleven coefficients. `kv_width`: the KV heads' width; `flops` and `bytes` a microsecond.
    """

    beta: tuple[float, ...]
    layers: int
    hidden: int
    kv_width: int
    feed_forward: int
    flops: float
    bytes: float

    @classmethod
    def read(cls, source: Path) -> "TrainedPhysics":
        """From the files of a checkout of BLIS."""
        defaults = yaml.safe_load((source / "defaults.yaml").read_text())
        gpu = json.loads((source / "hardware_config.json").read_text())[GPU]
        model = json.loads((source / "model_configs" / MODEL.partition("/")[2] / "config.json").read_text())
        return cls(
            beta=tuple(defaults["trained_physics_coefficients"]["beta_coeffs"]),
            layers=model["num_hidden_layers"],
            hidden=model["hidden_size"],
            kv_width=model["num_key_value_heads"] * (model["hidden_size"] // model["num_attention_heads"]),
            feed_forward=model["intermediate_size"],
            flops=gpu["TFlopsPeak"] * 1e6,
            bytes=gpu["BwPeakTBs"] * 1e6,
        )

    def seconds(self, work: StepWork) -> float:
        return self.ticks(work) * TICK

    def ticks(self, work: StepWork) -> int:
        """Whole microseconds, as BLIS has them."""
        prompts, pairs = (work.prompts, work.pairs) if isinstance(work, BlisWork) else (0, 0.0)
        b, decodes, past = self.beta, work.sequences, work.kv_tokens - work.sequences
        prefill_us = self._compute_us(work.prefill_tokens, pairs)
        decode_us = self._compute_us(decodes, past)
        weights = self.layers * self._parameters * 2
        return int(
            b[0] * prefill_us
            + b[8] * self._kv_us(work.prefill_tokens)
            + (b[1] * decode_us + b[9] * self._kv_us(past + decodes))
            + b[2] * (weights / self.bytes)
            + b[4] * self.layers
            + b[5] * (decodes + prompts)
            + b[6]
        )

    @property
    def _parameters(self) -> int:
        """Of one layer."""
        return self.hidden * (2 * self.hidden + 2 * self.kv_width) + 3 * self.hidden * self.feed_forward

    def _compute_us(self, tokens: int, pairs: float) -> float:
        return self.layers * (2 * tokens * self._parameters + 4 * self.hidden * pairs) / self.flops

    def _kv_us(self, tokens: int) -> float:
        return self.layers * 2 * self.kv_width * 2 * tokens / self.bytes


@dataclass(frozen=True, slots=True)
class Latency:
    """Of one request, in ticks."""

    ttft: int
    e2e: int


def measure(quick: bool) -> Measured:
    """Two rows for each number of replicas and load: the median differences of TTFT and E2E in percent."""
    source = folder()
    clock, rows, details = TrainedPhysics.read(source), [], {}
    for replicas in (1, 2, 4):
        for load, times in COPIES.items():
            requests = workload(times * replicas, QUICK_REQUESTS if quick else REQUESTS)
            theirs = blis(source, clock.beta, requests, replicas)
            ours, facts = simulated(clock, requests, replicas)
            name = f"BLIS, {load} load on {replicas} replica{'s' * (replicas > 1)}"
            found, details[name] = compared(name, ours, theirs)
            details[name] |= facts
            rows += found
    return rows, details


def folder() -> Path:
    """The checkout of BLIS. Raises SystemExit naming the variable."""
    path = Path(os.environ.get(VARIABLE, ""))
    if not (path / "blis").is_file():
        raise SystemExit(f"set {VARIABLE} to a checkout of BLIS in which `go build -o blis main.go` was run")
    return path.resolve()


def workload(times: int, count: int) -> list[TraceRequest]:
    """So many requests of `times` copies of Azure's conversations at random phases, no two in one tick."""
    log = [request for request in trace("conv") if request.output_tokens]
    span_s = 2 * count * (log[-1].at - log[0].at) / (times * len(log))
    return list(_in_ticks(copies(log, times, Random(1), span_s=span_s)))[:count]


def _in_ticks(requests: Sequence[TraceRequest]) -> Iterator[TraceRequest]:
    last = -1
    for request in requests:
        last = max(int(request.at / TICK), last + 1)
        yield TraceRequest(last * TICK, request.prompt_tokens, request.output_tokens)


_ROW = {
    **dict.fromkeys(("request_id", "client_id", "tenant_id", "slo_class", "session_id"), ""),
    "round_index": "0",
    "prefix_group": "",
    "prefix_length": "0",
    "streaming": "true",
    **dict.fromkeys(("input_tokens", "output_tokens", "text_tokens", "image_tokens", "audio_tokens"), "0"),
    **dict.fromkeys(("video_tokens", "reason_ratio"), "0"),
    "model": "",
    **dict.fromkeys(("deadline_us", "server_input_tokens", "arrival_time_us", "send_time_us"), "0"),
    **dict.fromkeys(("first_chunk_time_us", "last_chunk_time_us", "num_chunks"), "0"),
    "status": "ok",
    **dict.fromkeys(("error_message", "finish_reason"), ""),
}
"""The columns of BLIS's trace format in its order, which counts, with what a request leaves open."""


def write_trace(requests: Sequence[TraceRequest], header: Path, data: Path) -> None:
    """BLIS's trace format, version 2: a YAML header and a CSV file; a tick of ours is a microsecond there."""
    header.write_text("trace_version: 2\ntime_unit: microseconds\nmode: generated\nwarm_up_requests: 0\n")
    with data.open("w", newline="") as file:
        writer = csv.DictWriter(file, tuple(_ROW))
        writer.writeheader()
        for number, request in enumerate(requests):
            lengths = {"input_tokens": request.prompt_tokens, "output_tokens": request.output_tokens}
            tick = int(request.at / TICK)
            writer.writerow(_ROW | lengths | {"request_id": number, "arrival_time_us": tick, "send_time_us": tick})


def blis(source: Path, beta: Sequence[float], requests: Sequence[TraceRequest], replicas: int) -> list[Latency]:
    """What BLIS finds; raises CalledProcessError if it refuses, ValueError if it does not end every request."""
    with TemporaryDirectory() as scratch:
        header, data, results = (Path(scratch) / name for name in ("trace.yaml", "trace.csv", "results.json"))
        write_trace(requests, header, data)
        options = {
            "model": MODEL,
            "hardware": GPU,
            "tp": 1,
            "latency-model": "trained-physics",
            "alpha-coeffs": "0,0,0",
            "beta-coeffs": ",".join(map(str, beta)),
            "num-instances": replicas,
            "routing-policy": "round-robin",
            "scheduler": "fcfs",
            "max-num-seqs": LIMITS.max_seqs,
            "max-num-batched-tokens": LIMITS.step_tokens,
            "block-size-in-tokens": BLOCK_TOKENS,
            "total-kv-blocks": BLOCKS,
            "horizon": 1 << 62,
            "trace-header": header,
            "trace-data": data,
            "results-path": results,
            "log": "error",
        }
        command = [str(source / "blis"), "replay", *(f"--{name}={value}" for name, value in options.items())]
        subprocess.run(command, cwd=source, check=True, stdout=subprocess.DEVNULL)
        rows = json.loads(results.read_text())
    found = {row["request_id"]: Latency(int(row["ttft_us"]), int(row["e2e_us"])) for row in rows}
    if len(found) != len(requests):
        raise ValueError(f"BLIS ended {len(found)} of {len(requests)} requests")
    return [found[number] for number in range(len(requests))]


def simulated(
    clock: TrainedPhysics, requests: Sequence[TraceRequest], replicas: int
) -> tuple[list[Latency], dict[str, Any]]:
    """What the simulator finds, with the facts that the comparison rests on."""
    engine = EngineSpec(clock, UNKNOWN, LIMITS, BLOCKS, prefix_cache=False, ahead=False, scheduler=BlisScheduler)
    pool = PoolPlan(TARGET, engine, StartTimes.of(1.0))
    arrivals = {RequestClass.INTERACTIVE: requests}
    plan = ServicePlan(service(), (pool,), arrivals, policy_of(f"static:{replicas}"), {"main": replicas})
    run = Simulation(RunPlan((plan,), routing=lambda *_: BaselinePolicy(round_robin)))
    results = {result.at: result for result in run.run().requests}
    ordered = [results[request.at] for request in requests]
    engines = run.cluster.engines.values()
    facts = {
        "requests": len(requests),
        "requests_per_s": len(requests) / requests[-1].at,
        "busy": sum(engine.busy_s for engine in engines) / (replicas * run.events.now),
        "preemptions": sum(engine.scheduler.counters.preemptions for engine in engines),
        "waited_outside": sum(result.sent != result.at for result in ordered),
    }
    return [Latency(*(round(s / TICK) for s in (r.ttft or 0.0, r.ended - r.at))) for r in ordered], facts


def compared(name: str, ours: Sequence[Latency], theirs: Sequence[Latency]) -> tuple[list[Row], dict[str, Any]]:
    """The rows of one run, how many requests differ by how much, and BLIS's latencies in ticks."""
    rows, details = [], {}
    for what in ("ttft", "e2e"):
        pairs = [(getattr(a, what), getattr(b, what)) for a, b in zip(ours, theirs, strict=True)]
        errors = [100 * abs(a / b - 1) for a, b in pairs]
        rows.append(Row(f"{name}: {what.upper()}, median difference", median(errors), "%", bar=SAME))
        details[what] = {
            "differing": sum(a != b for a, b in pairs),
            "largest_percent": max(errors),
            "p50": median(b for _, b in pairs),
            "p99": quantile([b for _, b in pairs], 0.99),
        }
    return rows, details
