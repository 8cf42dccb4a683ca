"""A service's whole status as lines; pure, from the object alone.

Also the autoscaler's decisions and a service's Events as lines, oldest first.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from paceline_cli.ui.rows import age, legend, row, table
from paceline_core.objects import InferenceService, read
from paceline_core.objects.naming import ANNOTATION_PAUSE_REASON, ANNOTATION_PAUSE_UNTIL
from paceline_core.objects.status import ServiceStatus
from paceline_core.units import counted


def decision_lines(entries: Sequence[Mapping[str, Any]], query: Mapping[str, str]) -> Iterator[str]:
    """The entries of a ledger, oldest first; `query` says whether they are only changes, and how many at most."""
    changes = query.get("kind") == "change"
    if "since" in query and len(entries) == int(query["limit"]):
        yield f"the newest {len(entries)}; older ones are left out"
    for entry in reversed(entries):
        yield from entry_lines(entry)
        if entry["held"] and not changes:
            yield f"    before it, {counted(entry['held'], 'pass', 'passes')} decided the same as the one above"


def entry_lines(entry: Mapping[str, Any]) -> Iterator[str]:
    """A decision: when, in which direction, why in one sentence; then what limited it, was rejected, and waits."""
    decision = entry["decision"]
    yield f"{entry['time']}  {decision['direction']:<4}  {decision['reason']}: {decision['sentence']}"
    if decision["limit"] != "none":
        yield f"    bound by {decision['limit']}"
    if decision["gaps"]:
        yield f"    missing: {', '.join(decision['gaps'])}"
    yield from (f"    not {_rejected(each)}" for each in decision["rejected"])
    if deferred := decision.get("deferred"):
        yield f"    deferred: {', '.join(deferred)}"
    if forecast := decision.get("reading", {}).get("forecast"):
        after_s, p50, p90 = (forecast[name] for name in ("after_s", "p50", "p90"))
        yield f"    demand in {after_s:.0f} s: p50 {p50:.2f}, p90 {p90:.2f} replica-s/s"


def _rejected(each: Mapping[str, Any] | str) -> str:
    """A number of replicas, its cost, why not; an autoscaler of an earlier release answers with the sentence."""
    if isinstance(each, str):
        return each
    cost = f" for ${each['dollars_per_hour']:.2f} an hour" if each["dollars_per_hour"] else ""
    return f"{each['replicas']}{cost}: {each['why']}"


def last(scaling: Mapping[str, Any]) -> Iterator[str]:
    """The last decision, the only one in `status.scaling`."""
    if scaling.get("decision"):
        bound = "" if scaling.get("limit", "none") in ("", "none") else f" (bound by {scaling['limit']})"
        yield f"{scaling.get('time', '')}  {scaling.get('reason', '')}: {scaling['decision']}{bound}".strip()


def event_line(event: Mapping[str, Any]) -> str:
    """`2026-01-31T12:00:00Z  Scaled: 1 -> 2 ...`, and the number of occurrences."""
    count = event.get("count") or (event.get("series") or {}).get("count") or 1
    often = f" (x{count})" if count > 1 else ""
    return f"{event_time(event)}  {event.get('reason', '')}: {event.get('message', '')}{often}"


def event_time(event: Mapping[str, Any]) -> str:
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((str(time) for time in times if time), event["metadata"].get("creationTimestamp") or "")


def detail(document: Mapping[str, Any], now: datetime) -> Iterator[str]:
    """The served model and how, the last decision, then conditions, pools and targets as tables."""
    service = read(InferenceService, document)
    shown = row(document)
    emulated = " (emulated)" if shown.emulated else ""
    source = service.status.workload.model or service.spec.model.source
    yield f"{shown.name}  {shown.model}  {source}{emulated}"
    yield from _facts(document, service.status, shown.replicas)
    conditions = [
        (c.type, c.status, c.reason, age(c.last_transition_time, now), c.message) for c in service.status.conditions
    ]
    desired = {pool.name: str(pool.desired) for pool in service.status.scaling.pools}
    pools = [
        (pool.name, str(pool.ready), str(pool.starting), str(pool.draining), desired.get(pool.name, ""))
        for pool in service.status.workload.pools
    ]
    promises = [
        (each.name, each.observed or "no data", each.target, "" if each.burn is None else f"{each.burn:.1f}")
        for each in shown.promises
    ]
    for header, rows in (
        (("CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE"), conditions),
        (("POOL", "READY", "STARTING", "DRAINING", "DESIRED"), pools),
        (("PROMISE", "OBSERVED", "PROMISED", "BURN"), promises),
    ):
        if rows:
            yield ""
            yield from table(header, rows)
    if explained := legend([shown]):
        yield explained
    if not conditions:
        yield "no status yet: is paceline's operator running, and does it watch this namespace?"


def _facts(document: Mapping[str, Any], status: ServiceStatus, replicas: str) -> Iterator[str]:
    scaling, work = status.scaling, status.workload
    decision = f"{scaling.reason}: {scaling.decision}" if scaling.decision else ""
    # the request to pause; the condition Paused says whether it is in force
    annotations = document["metadata"].get("annotations") or {}
    until, reason = annotations.get(ANNOTATION_PAUSE_UNTIL, ""), annotations.get(ANNOTATION_PAUSE_REASON, "")
    facts = {
        "replicas": replicas,
        "revision": f"{work.revision}, canary {work.canary}" if work.canary else work.revision,
        "endpoint": work.endpoint,
        "promise": scaling.promise,
        "decision": f"{decision} ({scaling.time})" if decision and scaling.time else decision,
        "cost": f"${status.cost.per_hour}/h" if status.cost.per_hour else "",
        "paused": f"until {until}: {reason}" if until and reason else f"until {until}" if until else "",
    }
    yield from (f"  {name:<10}{value}" for name, value in facts.items() if value)
