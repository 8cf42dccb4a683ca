"""A plan as JSON: seconds, bytes, tokens and dollars as numbers; null where something is not promised or not known."""

from dataclasses import asdict
from math import isfinite
from typing import Any

from paceline_planner.candidates import PlannedLoad, PlannedPool
from paceline_planner.plan import Plan


def plan_document(plan: Plan) -> dict[str, Any]:
    shape = plan.shape
    return {
        "v": 1,
        "model": {
            "name": shape.name,
            "parameters": shape.parameters,
            "weight_bytes": shape.weight_bytes,
            "kv_bytes_per_token": shape.kv_bytes_per_token,
        },
        "load": load_document(plan.load),
        "chosen": candidate_document(plan.chosen),
        "alternatives": [candidate_document(one) for one in plan.alternatives],
        "nearest": candidate_document(plan.nearest),
        "decisions": [asdict(decision) for decision in plan.decisions],
    }


def load_document(load: PlannedLoad) -> dict[str, Any]:
    promise = {name: value if name == "also" else _number(value) for name, value in asdict(load.promise).items()}
    lengths = {name: _number(value) for name, value in asdict(load.lengths).items()}
    return {"requests_per_s": load.rate, **lengths, "promise": promise}


def candidate_document(one: PlannedPool | None) -> dict[str, Any] | None:
    if one is None:
        return None
    price = one.dollars_per_hour
    return {
        "accelerator": one.replica.accelerator.name,
        "split": asdict(one.replica.split),
        "replicas": one.replicas,
        "devices": one.devices,
        "kv_tokens": one.pool.speed.kv_tokens * one.pool.lanes,
        "ttft_s": _number(one.ttft_s),
        "tpot_s": _number(one.tpot_s),
        "goodput": one.goodput,
        "usable_share": one.pool.usable,
        "limit": one.pool.limit,
        "dollars_per_hour": None if price is None else float(price),
        "dollars_per_million_tokens": one.dollars_per_million_tokens,
        "tokens_per_s_per_watt": one.tokens_per_s_per_watt,
        "promise": load_document(one.load)["promise"],
    }


def _number(value: float) -> float | None:
    return value if isfinite(value) else None
