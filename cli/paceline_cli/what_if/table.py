"""The answer of `what-if` on a terminal and as JSON: as is beside would be, and the difference. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from paceline_cli.what_if.question import Question
from paceline_cli.what_if.runs import Compared, WhatIfAnswer
from paceline_core.clock import rfc3339
from paceline_core.objects.resolved import Target
from paceline_core.units import brief
from paceline_simulator.comparison import TIE, describe_target
from paceline_simulator.what_if import WhatIf
from paceline_simulator.what_if_outcome import WhatIfOutcome

_COLUMNS = ("as is", "would be", "difference")
_UNKNOWN = "-"


def render(question: Question, asked: WhatIf, answer: WhatIfAnswer, price: float | None) -> RenderableType:
    """`price`: dollars an hour of one replica; None if it is not known."""
    parts: list[RenderableType] = [Text(f"{asked.as_is.service.key}: {question.sentence}", style="bold")]
    for name, compared in (("fluid model", answer.fluid), ("exact simulator", answer.exact)):
        if not isinstance(compared, str):
            parts += [Text(""), _table(name, asked, compared, price)]
    return Group(*parts, Text(""), *(Text(line) for line in _notes(question, asked, answer)))


def _table(name: str, asked: WhatIf, compared: Compared, price: float | None) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(f"{name}, {_span(asked, compared)}", no_wrap=True)
    for column in _COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for row in _rows(asked, compared, price):
        table.add_row(*row)
    return table


def _rows(asked: WhatIf, compared: Compared, price: float | None) -> Iterator[tuple[str, str, str, str]]:
    as_is, would_be = compared.as_is, compared.would_be
    before = {target.name: target for target in asked.promise(asked.as_is)}
    for target in asked.promise(asked.would_be):
        old = before.get(target.name)
        yield (
            f"{describe_target(target)}{_was(old, target)}",
            _UNKNOWN if old is None else _in_time(as_is, old),
            _in_time(would_be, target),
            _points(as_is, would_be, target.name) if old else "",
        )
    yield _row("replicas, mean", as_is.replicas, would_be.replicas, "{:.2f}")
    yield _row("replicas, most", as_is.peak, would_be.peak, "{:.0f}")
    yield _row("GPU-hours", as_is.gpu_s / 3600, would_be.gpu_s / 3600, "{:.2f}")
    if price is not None:
        yield _row("dollars an hour", as_is.replicas * price, would_be.replicas * price, "{:.2f}")


def _row(title: str, old: float, new: float, form: str) -> tuple[str, str, str, str]:
    difference = form.replace(":", ":+").format(new - old)
    return title, form.format(old), form.format(new), difference if float(difference) else "0"


def _was(old: Target | None, new: Target) -> str:
    return f" (is {brief(old.seconds)})" if old is not None and old.seconds != new.seconds else ""


def _in_time(outcome: WhatIfOutcome, target: Target) -> str:
    """The share of requests that met the target, and whether that is enough."""
    share = outcome.targets.get(target.name)
    if share is None:
        return _UNKNOWN
    return f"{share:.2%} {'holds' if share >= target.objective else 'misses'}"


def _points(as_is: WhatIfOutcome, would_be: WhatIfOutcome, name: str) -> str:
    if name not in as_is.targets or name not in would_be.targets:
        return ""
    points = round(100 * (would_be.targets[name] - as_is.targets[name]), 2)
    return f"{points:+.2f} points" if points else "0 points"


def _span(asked: WhatIf, compared: Compared) -> str:
    start, end = (datetime.fromtimestamp(asked.begin + at, UTC) for at in (compared.start_s, compared.end_s))
    form = "%H:%M:%S" if start.date() == end.date() else "%d %b %H:%M"
    return f"{start:{form}} to {end:{form}} UTC"


def _notes(question: Question, asked: WhatIf, answer: WhatIfAnswer) -> Iterator[str]:
    fluid, exact = answer.fluid, answer.exact
    yield (
        f"fluid: {_long(fluid.end_s - fluid.start_s)} of sums by second, without single requests; it took "
        f"{fluid.took_s:.0f} s"
    )
    if fluid.end_s < asked.span_s:
        yield f"fluid: no time was left for the last {_long(asked.span_s - fluid.end_s)}; raise --time-limit"
    if isinstance(exact, str):
        yield f"exact: {exact}"
    else:
        yield (
            f"exact: {_long(exact.end_s - exact.start_s)} of the hour in which most waits, each request simulated; it "
            f"took {exact.took_s:.0f} s"
        )
        yield f"for attainment in {_span(asked, exact)} believe the exact simulator, beyond that the fluid model"
    if asked.known_s < question.since_s - 60:
        known = f"{_long(asked.known_s)} of the last {_long(question.since_s)} are known"
        yield f"{known}; gaps are filled by straight lines"
    if any(target.metric == "e2e" for side in (asked.as_is, asked.would_be) for target in asked.promise(side)):
        yield "the fluid model judges no E2E"
    yield f"both with policy slo; a difference of cost below {TIE:.0%} is a tie"


def _long(seconds: float) -> str:
    minutes = round(seconds / 60)
    hours, rest = divmod(minutes, 60)
    return " ".join([*([f"{hours} h"] if hours else []), *([f"{rest} min"] if rest or not hours else [])])


def document(question: Question, asked: WhatIf, answer: WhatIfAnswer, price: float | None) -> dict[str, Any]:
    """The same as JSON: shares are 0 to 1, times seconds and RFC 3339."""
    return {
        "service": asked.as_is.service.key,
        "class": asked.request_class.value,
        "changes": {"slo": [list(change) for change in question.slo], "requests": question.factor},
        "since_s": question.since_s,
        "known_s": asked.known_s,
        "fluid": _document(asked, answer.fluid, price),
        "exact": None if isinstance(answer.exact, str) else _document(asked, answer.exact, price),
        "exact_missing": answer.exact if isinstance(answer.exact, str) else None,
    }


def _document(asked: WhatIf, compared: Compared, price: float | None) -> dict[str, Any]:
    begin, end = (rfc3339(datetime.fromtimestamp(asked.begin + at, UTC)) for at in (compared.start_s, compared.end_s))
    sides = {
        "as_is": _side(compared.as_is, asked.promise(asked.as_is), price),
        "would_be": _side(compared.would_be, asked.promise(asked.would_be), price),
    }
    keys = ("replicas", "peak", "gpu_hours", "dollars_per_hour")
    old, new = sides["as_is"], sides["would_be"]
    difference = {key: None if old[key] is None or new[key] is None else new[key] - old[key] for key in keys}
    return {"begin": begin, "end": end, "took_s": compared.took_s, **sides, "difference": difference}


def _side(outcome: WhatIfOutcome, promise: Sequence[Target], price: float | None) -> Mapping[str, Any]:
    return {
        "requests": outcome.offered,
        "targets": [
            {
                "name": target.name,
                "seconds": target.seconds,
                "objective": target.objective,
                "attainment": outcome.targets.get(target.name),
            }
            for target in promise
        ],
        "holds": outcome.holds(promise),
        "replicas": outcome.replicas,
        "peak": outcome.peak,
        "gpu_hours": outcome.gpu_s / 3600,
        "dollars_per_hour": None if price is None else outcome.replicas * price,
    }
