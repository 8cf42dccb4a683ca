"""The autoscaler's ledger on a cluster, read through the API server's pod proxy (needs `get` on `pods/proxy`).

Each autoscaler has entries of the time in which it held the Lease, so all of them are read and merged by time.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from paceline_cli.kube.session import proxied, text
from paceline_core.errors import InvalidInput, PacelineError
from paceline_core.kube import ObjectKey
from paceline_core.kube.client.client import KubeClient
from paceline_core.kube.client.resource import RESOURCES

AUTOSCALER: Final = "app.kubernetes.io/name=paceline-autoscaler"
PORT: Final = 8090
SIZE_LIMIT: Final = 64 << 20
LIMIT_S: Final = 60.0
Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LedgerAnswer:
    """Entries, newest first, and their source; if there are none, `source` says why."""

    source: str
    entries: tuple[Entry, ...] = ()


async def read_ledger(api: KubeClient, system: str, query: Mapping[str, str]) -> LedgerAnswer:
    """Read from every autoscaler pod; never raises for missing or forbidden ones."""
    try:
        pods = await api.list(RESOURCES["Pod"], system, selector=AUTOSCALER)
    except PacelineError as error:
        return LedgerAnswer(f"the autoscaler's pods cannot be listed ({error})")
    reasons = [] if pods else [f"no autoscaler runs in namespace {system}"]
    found: dict[str, list[Entry]] = {}
    for pod in pods:
        name = pod["metadata"]["name"]
        try:
            entries = await _entries(api, ObjectKey(system, name), query)
        except PacelineError as error:
            reasons.append(f"{name} cannot be asked ({error})")
            continue
        if entries:
            found[name] = entries
        else:
            reasons.append(f"{name} has decided nothing about it{' since then' if 'since' in query else ''}")
    if not found:
        return LedgerAnswer("; ".join(reasons))
    failed = [f"; {reason}" for reason in reasons if "cannot be asked" in reason]
    source = f"the ledger of {' and '.join(f'{system}/{name}' for name in found)}{''.join(failed)}"
    return LedgerAnswer(source, newest(found.values(), int(query["limit"])))


def newest(answers: Iterable[Iterable[Entry]], limit: int) -> tuple[Entry, ...]:
    """The newest entries of all, each once: autoscalers that share a volume have the same."""
    entries = {entry["at"]: entry for answer in answers for entry in answer}
    return tuple(entries[at] for at in sorted(entries, reverse=True)[:limit])


async def _entries(api: KubeClient, pod: ObjectKey, query: Mapping[str, str]) -> list[Entry]:
    url = proxied(pod, PORT, "/debug/decisions")
    answer = await text(api, url, query, limit=SIZE_LIMIT, within_s=LIMIT_S)
    try:
        entries = json.loads(answer)
    except ValueError:
        entries = None
    if not isinstance(entries, list):
        raise InvalidInput("--limit", "the answer is no list of decisions, or too long: lower it")
    return entries
