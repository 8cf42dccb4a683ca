"""Counters of gateways over hours: as a gateway would have exported them, and in a Prometheus that has scraped them."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.prometheus_server import prometheus_server

from paceline_autoscaler.model.past_work import NO_COUNTS, Counts, DemandScrape
from paceline_core.registry.enums import RequestClass
from paceline_core.registry.metrics import DEMAND_SERIES

INTERACTIVE = RequestClass.INTERACTIVE


def counts(requests: float, prompt: int = 4000, output: int = 100, cached: int = 0) -> Counts:
    """The counts of so many requests of one length, all answered, in the order of DEMAND_SERIES."""
    computed = prompt - cached
    each = {
        "arrivals": 1,
        "prompt_tokens": prompt,
        "completed": 1,
        "completed_prompt_tokens": prompt,
        "cached_tokens": cached,
        "output_tokens": output,
        "attended_pairs": computed * (prompt - computed / 2),
        "kv_reads": output * (prompt + output / 2),
    }
    return tuple(requests * each[name] for name in DEMAND_SERIES)


def plus(one: Counts, other: Counts) -> Counts:
    return tuple(a + b for a, b in zip(one, other, strict=True))


@dataclass
class GatewayCounters:
    """One gateway's counts, and how they stood at each scrape."""

    name: str = "gateway-0"
    service: str = "chat"
    total: dict[RequestClass, Counts] = field(default_factory=dict)
    scrapes: list[DemandScrape] = field(default_factory=list)

    def add(self, more: Counts, cls: RequestClass = INTERACTIVE) -> None:
        self.total[cls] = plus(self.total.get(cls, NO_COUNTS), more)

    def restart(self) -> None:
        self.total = {}

    def scrape(self, at: float) -> None:
        self.scrapes.append(DemandScrape(at, dict(self.total)))

    def lines(self) -> Iterator[str]:
        """What Prometheus has scraped, as OpenMetrics with times; every class exists from the start."""
        for cls in RequestClass:
            for place, (metric, kind) in enumerate(DEMAND_SERIES.values()):
                names = f'pisvc_namespace="default",pisvc="{self.service}",class="{cls}",kind="{kind}"'
                for scrape in self.scrapes:
                    value = scrape.classes.get(cls, NO_COUNTS)[place]
                    yield f'{metric}{{{names},instance="{self.name}"}} {value} {scrape.at}'


@contextlib.contextmanager
def prometheus_with(folder: Path, gateways: Iterable[GatewayCounters]) -> Iterator[str]:
    """The URL of a real Prometheus that has scraped these gateways in the past."""
    program, promtool = shutil.which("prometheus"), shutil.which("promtool")
    if program is None or promtool is None:
        pytest.fail("no `prometheus` and `promtool` on PATH; install them: apt-get install prometheus")
    text = folder / "past.om"
    text.write_text("\n".join([*(line for gateway in gateways for line in gateway.lines()), "# EOF", ""]))
    blocks = [promtool, "tsdb", "create-blocks-from", "openmetrics", str(text), str(folder / "data")]
    subprocess.run(blocks, check=True, capture_output=True)
    config: Mapping[str, object] = {"global": {"scrape_interval": "1h"}}
    with prometheus_server(program, folder, dict(config), "--storage.tsdb.retention.time=30d") as url:
        yield url
