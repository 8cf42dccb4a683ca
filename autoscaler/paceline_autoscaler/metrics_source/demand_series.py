"""The demand that gateways exported, as Prometheus knows it: the query for a span, and its scrapes by gateway. Pure.

A step of a range repeats the last sample before it, so the time of each scrape is asked for, too: what lies between two
scrapes happened between these times, and a gateway that was not scraped for a while is told from one without requests.
A class has series from its first request on; before, its counts are 0.
"""

from collections.abc import Iterable, Mapping

from paceline_autoscaler.metrics_source.base import RangeQuery, RangeSeries, matchers, service_labels
from paceline_autoscaler.model.past_work import DemandScrape
from paceline_core.registry.enums import RequestClass
from paceline_core.registry.metrics import DEMAND_SERIES

_SCRAPED = "paceline_scraped"
_REQUESTS = DEMAND_SERIES["arrivals"][0]
_METRICS = "|".join(sorted({metric for metric, _ in DEMAND_SERIES.values()}))
_ORDER = {place: number for number, place in enumerate(DEMAND_SERIES.values())}
_OWN = frozenset(("__name__", "class", "kind", "pisvc_namespace", "pisvc", _SCRAPED))

Target = frozenset[tuple[str, str]]
"""The labels by which Prometheus tells gateways apart."""


def demand_range(namespace: str, name: str, start: float, end: float, step_s: float) -> RangeQuery:
    """The query for all counts of a service in a span, and for when they were scraped."""
    service = matchers(service_labels(namespace, name))
    counts, arrived = f'{{__name__=~"{_METRICS}",{service}}}', f'{_REQUESTS}{{{service},kind="arrived"}}'
    times = f'timestamp({_REQUESTS}{{{service},kind="arrived",class="{RequestClass.INTERACTIVE}"}})'
    used = f"({counts} and ignoring (__name__, kind) ({arrived} > 0))"
    return RangeQuery(f'{used} or label_replace({times}, "{_SCRAPED}", "s", "", "")', start, end, step_s)


def scrapes_of(series: Iterable[RangeSeries]) -> dict[Target, list[DemandScrape]]:
    """The scrapes of each gateway, oldest first; one of which a count is missing is left out."""
    times: dict[Target, dict[float, float]] = {}
    counts: dict[Target, dict[RequestClass, dict[int, dict[float, float]]]] = {}
    for one in series:
        target = frozenset((name, value) for name, value in one.labels.items() if name not in _OWN)
        if _SCRAPED in one.labels:
            times.setdefault(target, {}).update(one.points)
        elif (place := _place(one.labels)) is not None:
            cls, number = place
            counts.setdefault(target, {}).setdefault(cls, {}).setdefault(number, {}).update(one.points)
    return {target: list(_scrapes(steps, counts.get(target, {}))) for target, steps in times.items()}


def _place(labels: Mapping[str, str]) -> tuple[RequestClass, int] | None:
    """The class of a series and its place in DEMAND_SERIES; None for what this version does not know."""
    number = _ORDER.get((labels.get("__name__", ""), labels.get("kind", "")))
    cls = labels.get("class")
    return None if number is None or cls not in set(RequestClass) else (RequestClass(cls), number)


def _scrapes(
    steps: Mapping[float, float], classes: Mapping[RequestClass, Mapping[int, Mapping[float, float]]]
) -> Iterable[DemandScrape]:
    last = None
    for step, at in sorted(steps.items()):
        rows = {
            cls: [fields.get(number, {}).get(step) for number in _ORDER.values()] for cls, fields in classes.items()
        }
        present = {cls: row for cls, row in rows.items() if any(value is not None for value in row)}
        whole = {cls: tuple(value for value in row if value is not None) for cls, row in present.items()}
        if at != last and all(len(counts) == len(_ORDER) for counts in whole.values()):
            yield DemandScrape(at, whole)
            last = at
