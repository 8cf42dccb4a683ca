"""Whether a request kept a promise, as its client sees it. One that failed in any way misses every target."""

import re
from typing import cast

from paceline_cli.bench.samples import Ending, RequestSample
from paceline_core.errors import InvalidInput
from paceline_core.objects import Target
from paceline_core.objects.fields import Metric
from paceline_core.registry import RequestClass
from paceline_core.units import seconds

_NAME = re.compile(r"^(ttft|tpot|e2e)_p(50|90|95|99)$")


def met(target: Target, sample: RequestSample) -> bool:
    """One token has no TPOT and keeps it; an answer without text has no TTFT and misses it."""
    if sample.ending is not Ending.OK:
        return False
    value = latency(sample, target.metric)
    return target.metric == "tpot" if value is None else value <= target.seconds


def latency(sample: RequestSample, metric: Metric) -> float | None:
    """The sample's latency by that metric, in seconds."""
    match metric:
        case "ttft":
            return sample.ttft
        case "tpot":
            return sample.tpot
        case "e2e":
            return sample.e2e


def parse_target(text: str, cls: RequestClass = RequestClass.INTERACTIVE) -> Target:
    """`ttft_p95=500ms` -> a target of that class. Raises InvalidInput."""
    name, _, limit = text.partition("=")
    match = _NAME.match(name)
    if match is None:
        raise InvalidInput("target", f"{text!r} is not like ttft_p95=500ms (ttft, tpot, e2e; p50, p90, p95, p99)")
    try:
        return Target(cls, cast("Metric", match[1]), int(match[2]) / 100, seconds(limit))
    except ValueError as error:
        raise InvalidInput("target", str(error)) from None
