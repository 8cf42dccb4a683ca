"""Converts objects from the API server to what plans compare: digests, so that a thousand services stay small.

A fingerprint omits what others change all the time (status, replicas, unmanaged annotations), so it changes only when
an input of a plan has changed. Hole: it needs whole objects, including managedFields.
"""

import hashlib
from functools import partial

import orjson

from paceline_core.kube.cluster import Manifest, ObjectKey
from paceline_core.launch import termination_reason
from paceline_core.objects.naming import LABEL_POOL
from paceline_core.units import one_line
from paceline_operator.plans.children import added_fields
from paceline_operator.plans.labels import INPUTS, MANAGED_BY, OURS
from paceline_operator.plans.types import (
    MANAGER,
    REPLICAS_MANAGER,
    SCALER,
    ObservedChild,
    Owner,
    PodProblem,
    ReplicaCounts,
)

_LEFT_OUT = frozenset(("apiVersion", "kind", "metadata", "status"))
_OURS = frozenset((MANAGER, REPLICAS_MANAGER))
_brief = partial(one_line, limit=512)


def observe_child(manifest: Manifest) -> ObservedChild:
    metadata, kind = manifest["metadata"], str(manifest["kind"])
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    owners = metadata.get("ownerReferences") or ()
    content = orjson.dumps(_content(manifest), option=orjson.OPT_SORT_KEYS)
    # times are whole seconds: on a tie another manager comes first, because we write only unclaimed fields
    entries = [one for one in metadata.get("managedFields") or () if not one.get("subresource")]
    latest: Manifest = max(entries, key=lambda one: (one.get("time", ""), one.get("manager") not in _OURS), default={})
    manager = str(latest.get("manager", ""))
    return ObservedChild(
        kind=kind,
        key=ObjectKey(metadata.get("namespace", ""), metadata["name"]),
        uid=metadata["uid"],
        owner=next(
            (Owner(one["kind"], one["name"], one["uid"]) for one in owners if one.get("controller")),
            None,
        ),
        content=content,
        fingerprint=hashlib.blake2b(content, digest_size=12).hexdigest(),
        managed=labels.get(MANAGED_BY[0]) == MANAGED_BY[1],
        inputs=annotations.get(INPUTS, ""),
        pool=labels.get(LABEL_POOL, ""),
        replicas=_replicas(manifest) if kind == "Deployment" else None,
        changed_by="" if manager in _OURS else manager,
        additions=added_fields(metadata) if kind == "Deployment" else (),
    )


def _content(manifest: Manifest) -> Manifest:
    metadata = manifest["metadata"]
    annotations = metadata.get("annotations") or {}
    rest = {name: part for name, part in manifest.items() if name not in _LEFT_OUT}
    if manifest["kind"] == "Deployment":
        rest["spec"] = {name: part for name, part in manifest["spec"].items() if name != "replicas"}
    return {
        "metadata": {
            "labels": metadata.get("labels") or {},
            "annotations": {name: value for name, value in annotations.items() if name.startswith(OURS)},
            "ownerReferences": metadata.get("ownerReferences") or [],
        },
        **rest,
    }


def _replicas(manifest: Manifest) -> ReplicaCounts:
    metadata, spec, status = manifest["metadata"], manifest["spec"], manifest.get("status") or {}
    owners = [
        entry
        for entry in metadata.get("managedFields") or ()
        if entry.get("manager") != MANAGER and "f:replicas" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
    ]
    latest: Manifest = max(owners, key=lambda entry: entry.get("time", ""), default={})
    scaled_by = str(latest.get("manager", ""))
    conditions = {found["type"]: found for found in status.get("conditions") or ()}
    failure, progress = conditions.get("ReplicaFailure", {}), conditions.get("Progressing", {})
    problem = None
    if failure.get("status") == "True":
        problem = PodProblem(failure.get("reason") or "FailedCreate", _brief(failure.get("message", "")))
    elif progress.get("status") == "False":
        problem = PodProblem(progress.get("reason") or "ProgressDeadlineExceeded", _brief(progress.get("message", "")))
    return ReplicaCounts(
        desired=spec.get("replicas", 1),
        total=status.get("replicas", 0),
        updated=status.get("updatedReplicas", 0),
        ready=status.get("readyReplicas", 0),
        available=status.get("availableReplicas", 0),
        terminating=status.get("terminatingReplicas", 0),
        generation=metadata.get("generation", 0),
        observed_generation=status.get("observedGeneration", 0),
        shared=bool(owners),
        scaled_by="" if scaled_by in {REPLICAS_MANAGER, SCALER} else scaled_by,
        problem=problem,
    )


def pod_problem(pod: Manifest) -> PodProblem | None:
    """Why a pod does not become ready, from the scheduler, the kubelet, or the worker's last line."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return None
    pool = (metadata.get("labels") or {}).get(LABEL_POOL, "")
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return PodProblem(condition.get("reason") or "Unschedulable", _brief(condition.get("message", "")), pool)
    for container in status.get("containerStatuses") or ():  # one that is only being created is not a problem
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason = waiting.get("reason", "")
        if reason == "CrashLoopBackOff":
            last = (container.get("lastState") or {}).get("terminated") or {}
            return PodProblem(reason, _brief(termination_reason(last)), pool)
        if reason.startswith(("Err", "ImagePull", "Invalid", "Create", "Run")):
            return PodProblem(reason, _brief(waiting.get("message", "")), pool)
    return None
