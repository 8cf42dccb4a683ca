"""The rotation of signing keys: a state machine over the registry, a ConfigMap of public keys and their states. Pure.

    published --PUBLISH_S--> delivering --delivered--> active --a newer one is active--> retired --RETIRE_S--> gone

Every namespace trusts all keys in the registry, each with the identities that its signer may use. A step is recorded
before it is executed, one step a pass: a key is `delivering` before its private half leaves this process, so a key that
may be in use is never dropped. Only this process holds the private half: after a restart, a key that was only published
is replaced, and one that was being delivered is kept and then rotated. Waits are measured by the wall clock and by this
process's own clock, and the shorter count applies, so that a clock that jumps ahead drops nothing early.
Hole: rotation itself follows the wall clock; a jump of 30 days rotates, which is harmless. A deleted registry is
started again at once, and tokens of the forgotten key are refused until its signer has the new one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from paceline_core.auth import jwk, jwk_set
from paceline_core.errors import InvalidInput
from paceline_core.kube.cluster import Manifest, ObjectKey
from paceline_operator.plans.labels import MANAGED_BY, ROTATE
from paceline_operator.plans.types import Apply, Deliver, DesiredChild, KeysPlan, KeysView, SigningKey

SIGNERS: Final = ("autoscaler", "gateway")
REGISTRY: Final = "paceline-signing-keys"
PUBLISH_S: Final = 120.0
RETIRE_S: Final = 600.0
_TICK_S: Final = 0.001
_WORK_S: Final = 1.0
_STATES: Final = ("published", "delivering", "active", "retired")
_DATA: Final = "keys.json"
_ROTATED: Final = "rotated"


@dataclass(frozen=True, slots=True)
class _Entry:
    """One key. `since` is the Unix time at which it entered its state."""

    kid: str
    signer: str
    public: str
    state: str
    since: float


def plan_keys(view: KeysView) -> KeysPlan:
    """The next step of every signer. Raises InvalidInput if the registry cannot be read: then nothing is done."""
    entries, rotated = _read(view.registry)
    annotations = ((view.registry or {}).get("metadata") or {}).get("annotations") or {}
    asked = str(annotations.get(ROTATE, ""))
    memo = {_mark(entry): view.memo.get(_mark(entry), view.now) for entry in entries}
    after = [step for signer in SIGNERS for step in _signer(signer, entries, view, memo, forced=asked != rotated)]
    coming = {entry.signer for entry in after if entry.state in ("published", "delivering")}
    answered = asked if coming.issuperset(SIGNERS) else rotated
    changed = after != entries or answered != rotated
    waits = []
    for entry in entries:
        wait_s = 0.0
        if entry.state in ("published", "retired"):
            wait_s = (PUBLISH_S if entry.state == "published" else RETIRE_S) - _spent(entry, view, memo)
        elif entry.state == "active":
            wait_s = entry.since + view.rotate_every_s - view.wall
        waits.append(max(wait_s, _WORK_S))
    return KeysPlan(
        registry=_apply(view, after, answered) if changed else None,
        deliver=tuple(
            Deliver(entry.signer, entry.kid)
            for entry in entries
            if entry.state == "delivering" and entry.kid not in view.delivered and _held(view, entry)
        ),
        trust=jwk_set(jwk(entry.kid, entry.public, entry.signer) for entry in entries),
        memo=memo,
        again_s=min(waits, default=None),
    )


def _mark(entry: _Entry) -> str:
    return f"{entry.kid} {entry.state}"


def _signer(
    signer: str, entries: Sequence[_Entry], view: KeysView, memo: Mapping[str, float], *, forced: bool
) -> Iterator[_Entry]:
    own = [entry for entry in entries if entry.signer == signer]
    fresh = view.held.get(signer)
    steps = [step for entry in own if (step := _step(entry, own, view, memo)) is not None]
    newest = max((entry.since for entry in steps if entry.state == "active"), default=None)
    begun = any(entry.state == "published" for entry in own) or any(entry.state == "delivering" for entry in steps)
    due = forced or begun or newest is None or view.wall - newest >= view.rotate_every_s
    coming = any(entry.state in ("published", "delivering") and _held(view, entry) for entry in steps)
    if due and not coming and fresh is not None and fresh.kid not in {entry.kid for entry in own}:
        since = max(view.wall, *(entry.since + _TICK_S for entry in own), 0.0)  # later than all, whatever the clock did
        steps.append(_Entry(fresh.kid, signer, fresh.public, "published", since))
    yield from steps


def _step(entry: _Entry, own: Sequence[_Entry], view: KeysView, memo: Mapping[str, float]) -> _Entry | None:
    """The next state of one key; None if it is removed."""
    spent = _spent(entry, view, memo)
    if entry.state == "published":
        first = not any(other.state in ("delivering", "active") for other in own)
        ready = first or spent >= PUBLISH_S
        if not _held(view, entry):  # only the process that holds its private half can use it
            return None
        return _turned(entry, "delivering", view) if ready else entry
    if entry.state == "delivering" and entry.kid in view.delivered:
        return _turned(entry, "active", view)
    if entry.state in ("delivering", "active"):
        superseded = any(other.state == "active" and other.since > entry.since for other in own)
        return _turned(entry, "retired", view) if superseded else entry
    return None if spent >= RETIRE_S else entry


def _held(view: KeysView, entry: _Entry) -> bool:
    held = view.held.get(entry.signer)
    return held is not None and held == SigningKey(entry.kid, entry.public)


def _turned(entry: _Entry, state: str, view: KeysView) -> _Entry:
    return replace(entry, state=state, since=max(view.wall, entry.since))


def _spent(entry: _Entry, view: KeysView, memo: Mapping[str, float]) -> float:
    observed_s = view.now - memo[_mark(entry)]
    return max(min(view.wall - entry.since, observed_s), 0.0)


def _read(registry: Manifest | None) -> tuple[list[_Entry], str]:
    data: Mapping[str, str] = (registry or {}).get("data") or {}
    try:
        found: list[dict[str, Any]] = orjson.loads(data.get(_DATA, "[]"))
        return sorted((_entry(one) for one in found), key=_order), data.get(_ROTATED, "")
    except (orjson.JSONDecodeError, TypeError, ValueError, KeyError) as error:
        fix = f"mend {_DATA} of the ConfigMap {REGISTRY}, or delete the ConfigMap to begin anew"
        raise InvalidInput(REGISTRY, f"cannot be read ({error}); {fix}") from None


def _entry(row: Mapping[str, Any]) -> _Entry:
    if row["state"] not in _STATES or row["signer"] not in SIGNERS:
        raise ValueError(f"{row['state']!r} of {row['signer']!r} is no state of a key")
    return _Entry(str(row["kid"]), row["signer"], str(row["public"]), row["state"], float(row["since"]))


def _order(entry: _Entry) -> tuple[str, float, str]:
    return (entry.signer, entry.since, entry.kid)


def _apply(view: KeysView, entries: Sequence[_Entry], asked: str) -> Apply:
    """Guarded by the version that was read: of two operators only one takes each step."""
    key = ObjectKey(view.namespace, REGISTRY)
    known = (view.registry or {}).get("metadata") or {}
    guard = {"resourceVersion": known["resourceVersion"]} if "resourceVersion" in known else {}
    rows = [
        {"kid": e.kid, "signer": e.signer, "public": e.public, "state": e.state, "since": e.since}
        for e in sorted(entries, key=_order)
    ]
    text = orjson.dumps(rows, option=orjson.OPT_INDENT_2).decode()
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": key.name, "namespace": key.namespace, "labels": dict((MANAGED_BY,)), **guard},
        "data": {_DATA: text, _ROTATED: asked},
    }
    return Apply(DesiredChild("ConfigMap", key, body), bool(guard), "signing keys move on", uid=known.get("uid"))
