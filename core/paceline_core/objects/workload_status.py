"""The operator's part of a status, built the same way by the operator and by local mode: pure.

A condition's time changes only with its `status`, whatever its message.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paceline_core.objects.model_names import LostName
from paceline_core.objects.naming import STABLE

Status = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ConditionValue:
    """One condition without its times: True, False or Unknown, a CamelCase word, a sentence."""

    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class PoolCounts:
    """Replicas of one pool: ready ones, starting ones, and those that drain."""

    name: str
    ready: int = 0
    starting: int = 0
    draining: int = 0


@dataclass(frozen=True, slots=True)
class RunningRevision:
    """What runs, where and under which name, and the bounds of replicas over all pools.

    `model` is its source. `rolling_out`: the spec's revision while another one (`revision`) still serves.
    """

    revision: str
    endpoint: str
    emulated: bool
    served_name: str = ""
    min_replicas: int = 0
    max_replicas: int = 0
    rolling_out: str = ""
    model: str = ""


VALID = ConditionValue("True", "Valid", "The object is valid and its parts were started.")
NO_PROBLEM = ConditionValue("False", "AsExpected", "Nothing is wrong.")


def named(key: str, loss: LostName | None) -> ConditionValue:
    """Whether a valid service answers to its served name; `loss`: the object that does instead. It runs either way."""
    if loss is None:
        return VALID
    if loss.partial:
        return replace(VALID, message=f"{VALID.message} {sentence(str(loss))}")
    fix = "Change spec.model.servedName to give it a short name of its own."
    return ConditionValue(
        "False", "NameTaken", f"{sentence(str(loss))} This service runs and answers to {key!r}. {fix}"
    )


def sentence(words: str) -> str:
    """A phrase as a complete sentence."""
    return f"{words[:1].upper()}{words[1:]}."


def readiness(ready: int, desired: int, problem: ConditionValue, serving: str = "") -> ConditionValue:
    """Whether requests are answered, however many replicas are still to come; if not, `problem` gives the reason.

    `serving`: a clause about the revision that answers, if it is not the spec's.
    """
    if ready:
        clause = f"; {serving}" if serving else ""
        return ConditionValue("True", "WorkersReady", f"{of_replicas(ready, desired)} ready for requests{clause}.")
    if desired:
        cause = f": {problem.reason}" if problem.status == "True" else ""
        return ConditionValue(
            "False", "NoWorkerReady", f"No worker is ready yet (0 of {desired}){cause}; requests are held."
        )
    return ConditionValue("False", "ScaledToZero", "Scaled to zero; the next request wakes a worker.")


def progress(ready: int, desired: int, *, settled: bool, leaving: int) -> ConditionValue:
    """Whether the number of replicas is changing; `leaving`: those that finish their streams and end."""
    message = f"{of_replicas(ready, desired)} ready"
    if settled:
        return ConditionValue("False", "ReplicasReady", f"{message}.")
    if leaving and ready >= desired:
        more = "1 more finishes its streams" if leaving == 1 else f"{leaving} more finish their streams"
        return ConditionValue("True", "Draining", f"{message}; {more}.")
    return ConditionValue("True", "Scaling", f"{message}.")


def of_replicas(count: int, whole: int) -> str:
    """`2 of 3 replicas are`: the start of every sentence about them; draining ones never count."""
    return f"{min(count, whole)} of {whole} {'replica is' if whole == 1 else 'replicas are'}"


def summary_reason(verdicts: Mapping[str, ConditionValue]) -> str:
    """The one word for a line: why an object is not accepted, or what is wrong with it; or empty."""
    for kind, bad in (("Accepted", "False"), ("Degraded", "True")):
        if kind in verdicts and verdicts[kind].status == bad:
            return verdicts[kind].reason
    return ""


def summary(counts: str, reason: str, *, emulated: bool) -> str:
    """`0/1`, `0/1 emulated`, `0/1 emulated CrashLoopBackOff`: counts first, the reason last."""
    return " ".join(part for part in (counts, "emulated" if emulated else "", reason) if part)


def workload(
    pools: Sequence[PoolCounts], desired: int, run: RunningRevision, verdicts: Mapping[str, ConditionValue]
) -> Status:
    """`status.workload`; `desired` is over all pools."""
    counts = f"{min(sum(pool.ready for pool in pools), desired)}/{desired}"
    return {
        "summary": summary(counts, summary_reason(verdicts), emulated=run.emulated),
        "revision": run.revision,
        "shares": {STABLE: 100},
        "pools": [
            {"name": pool.name, "ready": pool.ready, "starting": pool.starting, "draining": pool.draining}
            for pool in pools
        ],
        "poolNames": ", ".join(pool.name for pool in pools),
        "endpoint": run.endpoint,
        "emulated": run.emulated,
        "model": run.model,
        "servedName": run.served_name,
        "minReplicas": run.min_replicas,
        "maxReplicas": run.max_replicas,
    }


def conditions(verdicts: Mapping[str, ConditionValue], before: Sequence[Status], time: str) -> list[Status]:
    """Conditions by type, with the time at which each status last changed; `before` is what was written last."""
    known = {(old["type"], old["status"]): old["lastTransitionTime"] for old in before}
    return [
        {
            "type": kind,
            "status": verdict.status,
            "reason": verdict.reason,
            "message": verdict.message,
            "lastTransitionTime": known.get((kind, verdict.status), time),
        }
        for kind, verdict in verdicts.items()
    ]
