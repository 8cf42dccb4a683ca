"""The options of `what-if`, and the question that they put, for a run here and for a cluster alike. Pure.

It imports nothing that simulates: the help of `kubectl paceline` must not need these packages.
"""

import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from paceline_core.errors import InvalidInput
from paceline_core.objects.resolved import ResolvedService
from paceline_core.registry import RequestClass
from paceline_core.units import seconds

Name = Annotated[str, typer.Argument(help="Name, or namespace/name.")]
Slo = Annotated[
    str, typer.Option("--slo", metavar="LIST", help="Targets to set, such as ttft:p95=300ms,tpot:p95=40ms.")
]
Rps = Annotated[str, typer.Option("--rps", metavar="FACTOR", help="So many times the requests, such as 1.5x.")]
Since = Annotated[str, typer.Option("--since", metavar="TIME", help="The past to play: the last 3h, 24h or 7d.")]
TimeLimit = Annotated[
    str,
    typer.Option(
        "--time-limit", metavar="TIME", help="How long the answer may take; the exact part gets what is left."
    ),
]
Class = Annotated[
    RequestClass | None,
    typer.Option("--class", help="The class of the requests. Default: the only one with a promise, else interactive."),
]
SINCE: Final = "24h"
LIMIT: Final = "60s"
LEAST_LIMIT: Final = "10s"
SINCE_BOUNDS: Final = ("5m", "7d")
"""Less is no history, and more is not kept."""
_TARGET = re.compile(r"(ttft|tpot|e2e):(p[0-9.]+)=([0-9a-z]+)")
_QUANTILES = ("p50", "p90", "p95", "p99")
_FACTOR = re.compile(r"([0-9]+(?:\.[0-9]+)?)x")
MOST_TIMES = 1000.0


@dataclass(frozen=True, slots=True)
class Question:
    """A change to try, and how far back. `slo`: (metric, quantile, limit) as they stand in a manifest."""

    slo: tuple[tuple[str, str, str], ...]
    factor: float
    since_s: float
    limit_s: float
    request_class: RequestClass | None

    @classmethod
    def of(cls, slo: str, rps: str, since: str, time_limit: str, request_class: RequestClass | None) -> "Question":
        """Raises InvalidInput naming the option."""
        if not slo and not rps:
            raise InvalidInput("--slo", "nothing is changed; write --slo ttft:p95=300ms, --rps 1.5x, or both")
        targets = tuple(_target(part.strip()) for part in slo.split(",")) if slo else ()
        times = (_between("--since", since, *SINCE_BOUNDS), _between("--time-limit", time_limit, LEAST_LIMIT))
        return cls(targets, _factor(rps) if rps else 1.0, *times, request_class)

    @property
    def sentence(self) -> str:
        """The changes in words."""
        changes = [f"{metric} {quantile} {limit}" for metric, quantile, limit in self.slo]
        return ", ".join([*changes, *([f"{self.factor:g} times the requests"] if self.factor != 1 else [])])

    def judged(self, service: ResolvedService) -> RequestClass:
        """The class that is asked about."""
        promised = [name for name, cls in service.classes.items() if cls.targets]
        return self.request_class or (promised[0] if len(promised) == 1 else RequestClass.INTERACTIVE)

    def changed(self, manifest: Mapping[str, Any], judged: RequestClass) -> Mapping[str, Any]:
        """The manifest with the targets of that class set."""
        document = deepcopy(dict(manifest))
        slo = document["spec"].setdefault("classes", {}).setdefault(judged.value, {}).setdefault("slo", {})
        for metric, quantile, limit in self.slo:
            slo.setdefault(metric, {})[quantile] = limit
        return document


def _target(text: str) -> tuple[str, str, str]:
    found = _TARGET.fullmatch(text)
    if found is None:
        raise InvalidInput("--slo", f"{text!r} is no target; write METRIC:QUANTILE=TIME, such as ttft:p95=300ms")
    if found[2] not in _QUANTILES:
        raise InvalidInput("--slo", f"{text!r} has no known quantile; quantiles are {', '.join(_QUANTILES)}")
    if not _seconds("--slo", found[3]):
        raise InvalidInput("--slo", f"{text!r} allows no time; the limit must be above 0s")
    return found[1], found[2], found[3]


def _factor(text: str) -> float:
    found = _FACTOR.fullmatch(text)
    if found is None or not 0 < float(found[1]) <= MOST_TIMES:
        fix = f"write so many times the requests with an x, up to {MOST_TIMES:g}x, such as 1.5x"
        raise InvalidInput("--rps", f"{text!r} is no factor; {fix}")
    return float(found[1])


def _seconds(option: str, text: str) -> float:
    try:
        return seconds(text)
    except ValueError as error:
        raise InvalidInput(option, str(error)) from None


def _between(option: str, text: str, least: str, most: str = "") -> float:
    found = _seconds(option, text)
    if found < seconds(least):
        raise InvalidInput(option, f"{text} is below the least, {least}")
    if most and found > seconds(most):
        raise InvalidInput(option, f"{text} is above the most, {most}")
    return found
