"""The planner's step times against published measurements: what a roofline from a data sheet is worth.

vLLM 0.19 (LLMServingSim's logs): the simulator replays each log with the prior of the accelerator instead of a fitted
model, so its errors are the roofline's. Splitwise: seconds of one prefill of 2,048 tokens and of one decode step, of
Llama-2-70B in an engine of 2023 without CUDA graphs, which launches each layer's kernels from the host.
"""

import csv
import gzip
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from typing import Any

from benchmarks.harness import Measured, Row, quantile
from benchmarks.simulator import calibration
from benchmarks.traces import folder

from paceline_planner.accelerators import A100, H100, RTX_4090, RTX_PRO_6000
from paceline_planner.hardware import Accelerator
from paceline_planner.shapes import LLAMA_3_1_8B, LLAMA_3_3_70B, QWEN3_30B_A3B, QWEN3_32B, ModelShape
from paceline_planner.splits import DeviceSplit
from paceline_planner.steptime import Caps, StepWork, prior, step_seconds

LOGS: dict[str, tuple[ModelShape, Accelerator, DeviceSplit]] = {
    "rtxpro6000_llama-3.1-8b": (LLAMA_3_1_8B, RTX_PRO_6000, DeviceSplit()),
    "rtx4090_llama-3.1-8b": (LLAMA_3_1_8B, RTX_4090, DeviceSplit()),
    "rtxpro6000_qwen3-32b": (QWEN3_32B, RTX_PRO_6000, DeviceSplit(2)),
    "rtxpro6000_qwen3-30b-a3b": (QWEN3_30B_A3B, RTX_PRO_6000, DeviceSplit(2, 1, 2)),
}
LLAMA_2_70B = replace(LLAMA_3_3_70B, vocab=32_000)
PROFILED = {"a100-80gb": A100, "h100-80gb": H100}
PROMPT = 2048


def parts(quick: bool) -> Iterator[Measured]:
    for engine in calibration.LOGS[:1] if quick else calibration.LOGS:
        yield _log(engine)
    yield _splitwise()


def _log(engine: calibration.LoggedEngine) -> Measured:
    shape, device, split = LOGS[engine.name]
    model = prior(shape, device, caps=Caps(2048, engine.slots), split=split)
    logged = calibration.read(engine.name)
    found = calibration.predict(logged, calibration.vllm(engine, model))
    errors = {
        "TPOT mean": calibration.percent(sum(row.tpot for row in found), sum(row.tpot for row in logged)),
        "E2E mean": calibration.percent(sum(row.e2e for row in found), sum(row.e2e for row in logged)),
        "TTFT p90": calibration.percent(
            quantile([row.ttft for row in found], 0.9), quantile([row.ttft for row in logged], 0.9)
        ),
    }
    rows = [Row(f"vLLM log {engine.name}: {what}, planned", abs(error), "%") for what, error in errors.items()]
    return rows, {f"log {engine.name}": {"model": model.model_dump(), **errors}}


def _splitwise() -> Measured:
    """Errors in percent by accelerator and devices, of a prefill and of a decode step alone."""
    measured: dict[tuple[str, int], dict[str, list[float]]] = defaultdict(lambda: {"prefill": [], "decode": []})
    with gzip.open(folder() / "calib" / "splitwise_perf.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            alone = (row["model"], int(row["prompt_size"]), int(row["batch_size"])) == ("llama2-70b", PROMPT, 1)
            if alone and row["hardware"] in PROFILED:
                times = measured[row["hardware"], int(row["tensor_parallel"])]
                times["prefill"].append(float(row["prompt_time_ms"]) / 1e3)
                times["decode"].append(float(row["token_time_ms"]) / 1e3)
    rows, details = [], {}
    for (name, tensor), times in sorted(measured.items()):
        errors = {kind: _error(kind, PROFILED[name], tensor, median(seconds)) for kind, seconds in times.items()}
        rows += [
            Row(f"Splitwise Llama-2-70B on {tensor} x {name}: {kind} alone, planned", abs(error), "%")
            for kind, error in errors.items()
        ]
        details[f"splitwise {tensor} x {name}"] = errors
    return rows, details


def _error(kind: str, device: Accelerator, tensor: int, seconds: float) -> Any:
    prefill, decode = StepWork(PROMPT, PROMPT / 2), StepWork(sequences=1, kv_tokens=PROMPT)
    work = prefill if kind == "prefill" else decode
    return calibration.percent(step_seconds(LLAMA_2_70B, device, work, DeviceSplit(tensor)), seconds)
