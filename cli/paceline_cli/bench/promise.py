"""What was promised, and whether a request kept it. A request that failed in any way misses every target."""

import re
from dataclasses import dataclass
from enum import StrEnum

from paceline_cli.bench.samples import Ending, Sample
from paceline_core.errors import InvalidInput
from paceline_core.units import seconds

_NAME = re.compile(r"^(ttft|tpot|e2e)_p(50|90|95|99)$")


class Measure(StrEnum):
    """The latencies a promise can name."""

    TTFT = "ttft"
    TPOT = "tpot"
    E2E = "e2e"


@dataclass(frozen=True, slots=True)
class Target:
    """`objective` of all offered requests must have `measure` at or under `threshold` seconds."""

    measure: Measure
    objective: float
    threshold: float

    @property
    def name(self) -> str:
        """`ttft_p95`, the same name as in metrics and manifests."""
        return f"{self.measure}_p{round(self.objective * 100)}"

    def met_by(self, sample: Sample) -> bool:
        """One token has no TPOT and keeps it; an answer without text has no TTFT and misses it."""
        if sample.ending is not Ending.OK:
            return False
        value = value_of(sample, self.measure)
        return self.measure is Measure.TPOT if value is None else value <= self.threshold


def value_of(sample: Sample, measure: Measure) -> float | None:
    """The sample's latency by that measure, in seconds."""
    match measure:
        case Measure.TTFT:
            return sample.ttft
        case Measure.TPOT:
            return sample.tpot
        case Measure.E2E:
            return sample.e2e


def parse_target(text: str) -> Target:
    """`ttft_p95=500ms` -> Target. Raises InvalidInput."""
    name, _, threshold = text.partition("=")
    match = _NAME.match(name)
    if match is None:
        raise InvalidInput("target", f"{text!r} is not like ttft_p95=500ms (ttft, tpot, e2e; p50, p90, p95, p99)")
    try:
        return Target(Measure(match[1]), int(match[2]) / 100, seconds(threshold))
    except ValueError as error:
        raise InvalidInput("target", str(error)) from None
