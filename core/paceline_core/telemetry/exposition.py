"""Prometheus's text format and OpenMetrics, written fast enough not to delay a token.

prometheus-client takes 15 us a line, most of it to escape the same labels again: 10 ms for a worker's page, 200 ms for
a gateway's of twenty services, during which no stream advances. Here the parts of a histogram's lines except its
numbers are made once. OpenMetrics differs in a counter's name, the end, and exemplars.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from paceline_core.registry.metrics import Kind
from paceline_core.telemetry.instruments import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPEN_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_HEADS = 8192
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Family:
    name: str
    kind: Kind
    help: str
    children: Sequence[tuple[Labels, float | Histogram]]


def page(families: Iterable[Family]) -> bytes:
    return "".join(line for family in families for line in _family(family, family.name, lambda _: {})).encode()


def open_page(families: Iterable[Family]) -> bytes:
    """The same as OpenMetrics, with exemplars."""
    named = ((family, family.name.removesuffix("_total")) for family in families)
    lines = (line for family, name in named for line in _family(family, name, _exemplars))
    return b"".join(("".join(lines).encode(), b"# EOF\n"))


def _family(family: Family, name: str, examples: Callable[[Histogram], Mapping[int, str]]) -> Iterator[str]:
    yield f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n"
    for labels, value in family.children:
        names = tuple(labels.items())
        if isinstance(value, Histogram):
            yield from _histogram(family.name, names, value, examples(value))
        else:
            yield f"{family.name}{_braces(names)} {float(value)!r}\n"


def _exemplars(value: Histogram) -> Mapping[int, str]:
    """Exemplars by bucket index, as the text after the count."""
    exemplars = value.exemplars.copy()
    return {at: f' # {{trace_id="{e.trace_id:032x}"}} {e.value!r} {e.at:.3f}' for at, e in exemplars.items()}


def _histogram(
    name: str, labels: tuple[tuple[str, str], ...], value: Histogram, examples: Mapping[int, str]
) -> Iterator[str]:
    *heads, count, total = _heads(name, labels, value.bounds)
    counts = list(accumulate(value.counts))
    if examples:
        for at, (head, below) in enumerate(zip(heads, counts, strict=True)):
            yield f"{head}{below}{examples.get(at, '')}\n"
    else:
        for head, below in zip(heads, counts, strict=True):
            yield f"{head}{below}\n"
    yield f"{count}{counts[-1]}\n{total}{value.total!r}\n"


@lru_cache(_HEADS)
def _heads(name: str, labels: tuple[tuple[str, str], ...], bounds: tuple[float, ...]) -> tuple[str, ...]:
    """All of a histogram's lines without the numbers: its buckets, count and sum."""
    edges = (*map(str, bounds), "+Inf")
    buckets = (f"{name}_bucket{_braces((*labels, ('le', edge)))} " for edge in edges)
    return (*buckets, f"{name}_count{_braces(labels)} ", f"{name}_sum{_braces(labels)} ")


def _braces(labels: tuple[tuple[str, str], ...]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in sorted(labels)) + "}"
