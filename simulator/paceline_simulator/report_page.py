"""A study as one page of HTML that loads nothing: result, policies, frontier, and the timeline of each policy. Pure.

It has no script: the choice of a policy is a group of radio buttons. Colours follow the reader's theme; print is light.
The frontier's axis of attainment counts nines, since 99 and 99.9 % differ as much as 90 and 99 %.
"""

from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from math import log10

from paceline_core.units import brief, counted
from paceline_simulator.charts import Axis, Chart, Mark, clock, number_axis, strip, time_axis
from paceline_simulator.comparison import TIE, Comparison, PolicySummary, describe_promise
from paceline_simulator.simulation import MOMENT_S
from paceline_simulator.study_rows import Interval, StudyRow

_MOST_POINTS = 480
_FEWEST_MISSES = 1e-4
"""Attainment beyond four nines is drawn there."""
_NINES = ((0.0, "0 %"), (0.301, "50 %"), (1.0, "90 %"), (2.0, "99 %"), (3.0, "99.9 %"), (4.0, "100 %"))


def report_page(comparison: Comparison, about: str) -> str:
    """`about`: what was simulated, in a line."""
    style = (files("paceline_simulator") / "report_page.css").read_text()
    chosen = "".join(
        f"#policy-{number}:checked~label[for=policy-{number}]{{border-color:var(--ink);color:var(--ink)}}"
        f"#policy-{number}:checked~#timeline-{number}{{display:block}}"
        for number in range(len(comparison.policies))
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(comparison.service)}: simulated policies</title><style>{style}{chosen}</style></head><body>"
        f"<header><p class=service>{escape(comparison.service)}</p><h1>{escape(comparison.headline())}</h1>"
        f"<p>Promise: {escape(describe_promise(comparison.promise))}.<br>Trace: {escape(about)}.</p></header>"
        f"<main>{_policies(comparison)}{_frontier(comparison)}{_timelines(comparison)}</main>"
        f"<footer>{_footer(comparison)}</footer></body></html>\n"
    )


def _footer(comparison: Comparison) -> str:
    rows = [row for policy in comparison.policies for row in policy.rows]
    versions = ", ".join(sorted({row.version for row in rows}))
    return f"{counted(len(rows), 'run')} of paceline {escape(versions)}, the production code on a virtual clock."


def nines(attainment: float) -> float:
    """0 for none in time, 1 for 90 %, 2 for 99 %, at most 4."""
    return -log10(max(1 - attainment, _FEWEST_MISSES))


def _policies(comparison: Comparison) -> str:
    rows = [row for policy in comparison.policies for row in policy.rows]
    share, cost = _attainment_axis(rows), number_axis(max(row.gpu_hours for row in rows))
    heads = "".join(f"<th>{target.metric.upper()} p{target.quantile * 100:g} met</th>" for target in comparison.promise)
    body = "".join(f"<tr>{''.join(_cells(comparison, p, share, cost))}</tr>" for p in comparison.policies)
    return (
        "<section><h2>Policies</h2><div class=wide><table class=policies><thead><tr><th>policy<th>promise"
        f"{heads}<th colspan=2>all met<th colspan=2>GPU-hours<th>$<th>against static<th>TTFT p95<th>TPOT p95"
        f"</thead><tbody>{body}</tbody></table></div><p class=note>Shares of the requests offered. A policy holds the "
        "promise if each target's share is reached, in the median of its seeds; a dot is one seed. Differences under "
        f"{TIE:.0%} are within the simulator's error.</p></section>"
    )


def _cells(comparison: Comparison, policy: PolicySummary, share: Axis, cost: Axis) -> Iterator[str]:
    typical = policy.typical
    yield f"<th>{escape(policy.policy)}</th>"
    yield f"<td class={'good' if policy.holds else 'bad'}>{'holds' if policy.holds else 'broken'}</td>"
    for target in comparison.promise:
        met = policy.target(target.name)
        yield f"<td class=number>{_percent(met)}{'' if met >= target.objective else ' ✗'}</td>"
    attained = [row.attainment for row in policy.rows]
    yield f"<td class=number>{_percent(policy.attainment)}</td><td>"
    yield strip(list(map(nines, attained)), nines(policy.attainment), share, lambda value: _percent(1 - 10**-value))
    yield f"</td><td class=number>{policy.gpu_hours:.2f}</td><td>"
    yield strip([row.gpu_hours for row in policy.rows], policy.gpu_hours, cost, lambda value: f"{value:.2f}")
    yield f"</td><td class=number>{'' if policy.dollars is None else f'{policy.dollars:.2f}'}</td>"
    yield f"<td class=number>{comparison.cost_against_reference(policy)}</td>"
    for quantile in (typical.ttft.p95, typical.tpot.p95):
        yield f"<td class=number>{'' if quantile is None else brief(quantile)}</td>"


def _attainment_axis(rows: Sequence[StudyRow]) -> Axis:
    """In nines, over the range that the rows need."""
    low = min(nines(row.attainment) for row in rows)
    high = max(nines(row.attainment) for row in rows)
    ticks = tuple(tick for tick in _NINES if low - 1 < tick[0] <= max(high, low) + 0.5)
    return Axis(min(low, ticks[0][0]), max(high, ticks[-1][0]) + 0.2, ticks)


def _frontier(comparison: Comparison) -> str:
    rows = [row for policy in comparison.policies for row in policy.rows]
    chart = Chart(number_axis(max(row.gpu_hours for row in rows), 6), _attainment_axis(rows))
    static = sorted((p for p in comparison.policies if p.static), key=lambda policy: policy.gpu_hours)
    if len(static) > 1:
        chart.line([(policy.gpu_hours, nines(policy.attainment)) for policy in static], "static")
    for policy in comparison.policies:
        chart.dots([(row.gpu_hours, nines(row.attainment)) for row in policy.rows], "seed")
        middle = [(policy.gpu_hours, nines(policy.attainment))]
        chart.dots(middle, "holds" if policy.holds else "misses")
    chart.labels(
        ((policy.gpu_hours, nines(policy.attainment)), policy.policy, "" if policy.holds else "misses")
        for policy in comparison.policies
    )
    legend = _legend(("holds", "holds the promise"), ("misses", "does not"), ("seed", "one seed"), ("static", "static"))
    about = "Share of requests in time against GPU-hours, a point for each policy."
    return (
        f"<section><h2>Frontier</h2><p class=axis>requests in time</p>{chart.html('frontier', about)}"
        f'<p class="axis right">GPU-hours</p>{legend}</section>'
    )


def _timelines(comparison: Comparison) -> str:
    radios, panels = [], []
    for number, policy in enumerate(comparison.policies):
        checked = " checked" if number == 0 else ""
        radios.append(
            f'<input type=radio name=policy id="policy-{number}"{checked}>'
            f'<label for="policy-{number}">{escape(policy.policy)}</label>'
        )
        panels.append(f'<div class=timeline id="timeline-{number}">{_timeline(policy)}</div>')
    return f"<section><h2>Timeline</h2>{''.join(radios)}{''.join(panels)}</section>"


def _timeline(policy: PolicySummary) -> str:
    row = policy.typical
    points, end = _thinned(row.timeline), row.timeline[-1].at + MOMENT_S
    note = f"{policy.policy}, seed {row.seed}, the median one: {_percent(row.attainment)} in time. Shaded: not scored."
    return (
        f"<p class=note>{escape(note)}</p>{_replicas(row, points, end)}{_flow(row, points, end)}"
        f"{_queue(row, points, end)}{_decisions(row)}"
    )


def _replicas(row: StudyRow, points: Sequence[Interval], end: float) -> str:
    highest = max(max(p.ready + p.starting + p.draining, p.demand, p.desired) for p in points)
    chart, base = _chart(row, end, highest), [(p.at, 0.0) for p in points]
    for name in ("ready", "starting", "draining"):
        above = [(p.at, low + getattr(p, name)) for p, (_, low) in zip(points, base, strict=True)]
        chart.area(base, above, name, end=end)
        base = above
    chart.line([(p.at, p.demand) for p in points], "demand")
    chart.marks(Mark(decision.at, f"{clock(decision.at)} {decision.sentence}") for decision in row.decisions)
    legend = _legend(
        ("ready", "ready"), ("starting", "starting"), ("draining", "draining"), ("demand", "work offered, in replicas")
    )
    return f"<h3>Capacity and demand, replicas</h3>{chart.html('tall', 'Replicas by state over time')}{legend}"


def _flow(row: StudyRow, points: Sequence[Interval], end: float) -> str:
    chart = _chart(row, end, max(point.offered for point in points))
    chart.line([(point.at, point.offered) for point in points], "demand")
    return f"<h3>Requests offered a second</h3>{chart.html('short', 'Requests offered a second over time')}"


def _queue(row: StudyRow, points: Sequence[Interval], end: float) -> str:
    chart = _chart(row, end, max(1, *(point.queued for point in points)))
    chart.steps([(point.at, point.queued) for point in points], "queue", end=end)
    return f"<h3>Requests waiting in the gateway</h3>{chart.html('short', 'Requests waiting over time')}"


def _chart(row: StudyRow, end: float, highest: float) -> Chart:
    """An empty chart over the run's time; what is not scored is shaded."""
    across, up = time_axis(end), number_axis(highest)
    chart = Chart(across, up)
    chart.shade(0.0, min(row.score[0], end), "unscored")
    if row.score[1] < end:
        chart.shade(row.score[1], end, "unscored")
    return chart


def _decisions(row: StudyRow) -> str:
    if not row.decisions:
        return "<p class=note>This policy gives no reasons.</p>"
    body = "".join(
        f"<tr><td class=number>{clock(decision.at)}<td class=number>{sum(decision.before.values())}→"
        f"{sum(decision.after.values())}<td>{escape(decision.sentence)}"
        for decision in row.decisions
    )
    return (
        f"<details open><summary>{counted(len(row.decisions), 'decision')}</summary><table class=decisions>"
        f"<thead><tr><th>at<th>replicas<th>why</thead><tbody>{body}</tbody></table></details>"
    )


def _thinned(timeline: Sequence[Interval]) -> list[Interval]:
    """At most _MOST_POINTS intervals: means of flows, the longest queue, states at the start of each."""
    size = -(-len(timeline) // _MOST_POINTS)
    groups = [timeline[start : start + size] for start in range(0, len(timeline), size)]
    return [
        Interval(
            group[0].at,
            sum(point.offered for point in group) / len(group),
            sum(point.demand for point in group) / len(group),
            group[0].desired,
            group[0].ready,
            group[0].starting,
            group[0].draining,
            max(point.queued for point in group),
            group[0].in_flight,
        )
        for group in groups
    ]


def _legend(*entries: tuple[str, str]) -> str:
    items = "".join(f'<li><i class="{name}"></i>{text}' for name, text in entries)
    return f"<ul class=legend>{items}</ul>"


def _percent(share: float) -> str:
    """Two digits after the point where misses are few; 100 % only if there is none."""
    text = f"{share:.1%}" if share < 0.99 else f"{share:.2%}"
    return "99.99%" if text.startswith("100") and share < 1 else text
