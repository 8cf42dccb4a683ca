"""CustomResourceDefinitions as plain data: the structural schema, every rule at its place, printer columns."""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from paceline_core.objects.field_errors import with_messages
from paceline_core.objects.metadata import GROUP, VERSION, Object
from paceline_core.objects.rules import RULES
from paceline_core.objects.schema import Schema, structural

_ACCEPTED: Final = ("Accepted", "string", ".status.conditions[?(@.type=='Accepted')].status")
_AGE: Final = ("Age", "date", ".metadata.creationTimestamp")


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of a kind, and its columns: (title, type, JSONPath), each a scalar with one writer.

    `wide`: columns that `-o wide` adds.
    """

    plural: str
    short: str
    columns: tuple[tuple[str, str, str], ...]
    scope: str = "Namespaced"
    wide: tuple[tuple[str, str, str], ...] = ()


_NAMES: Final = {
    "InferenceService": _Names(
        "inferenceservices",
        "pisvc",
        (
            ("Model", "string", ".status.workload.model"),
            ("Served", "string", ".status.workload.servedName"),
            ("Ready", "string", ".status.workload.summary"),
            ("Desired", "integer", ".status.scaling.desired"),
            ("SLO", "string", ".status.scaling.promise"),
            ("Burn", "number", ".status.scaling.burn"),
            ("Reason", "string", ".status.scaling.reason"),
            ("Cost/h", "string", ".status.cost.perHour"),
            _AGE,
        ),
        wide=(
            ("Min", "integer", ".status.workload.minReplicas"),
            ("Max", "integer", ".status.workload.maxReplicas"),
            ("Pools", "string", ".status.workload.poolNames"),
            ("Endpoint", "string", ".status.workload.endpoint"),
        ),
    ),
    "Tenant": _Names(
        "tenants",
        "ptenant",
        (
            ("Weight", "integer", ".spec.weight"),
            ("Class", "string", ".spec.defaultClass"),
            ("Month", "string", ".status.usage.month"),
            _ACCEPTED,
            _AGE,
        ),
    ),
    "InferenceRoute": _Names("inferenceroutes", "piroute", (("Model", "string", ".spec.model"), _ACCEPTED, _AGE)),
    "AcceleratorProfile": _Names(
        "acceleratorprofiles",
        "paccel",
        (
            ("Memory", "string", ".spec.memory"),
            ("Bandwidth", "string", ".spec.bandwidth"),
            ("Dollars/h", "string", ".spec.dollarsPerHour"),
            ("Watts", "integer", ".spec.watts"),
            _ACCEPTED,
            _AGE,
        ),
        scope="Cluster",
    ),
}


def crd_name(kind: type[Object]) -> str:
    """`inferenceservices.paceline.dev`: the name of the definition, and of its file."""
    return f"{_NAMES[kind.__name__].plural}.{GROUP}"


def crd(kind: type[Object]) -> dict[str, Any]:
    names = _NAMES[kind.__name__]
    columns: list[dict[str, Any]] = [
        {"name": title, "type": type_, "jsonPath": path} for title, type_, path in (*names.columns, *names.wide)
    ]
    for column in columns[len(names.columns) :]:
        column["priority"] = 1
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": with_messages(judged(kind))},
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": crd_name(kind)},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind.__name__,
                "listKind": f"{kind.__name__}List",
                "plural": names.plural,
                "singular": kind.__name__.lower(),
                "shortNames": [names.short],
                "categories": ["paceline"],
            },
            "scope": names.scope,
            "versions": [version],
        },
    }


def judged(kind: type[Object]) -> Schema:
    """The structural schema with every rule of the kind at its place; of `metadata` it has only the name."""
    schema = deepcopy(structural(kind))
    schema["properties"]["metadata"] = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 253}}}
    for rule in RULES:
        if rule.kind == kind.__name__:
            found = {"rule": rule.cel, "message": rule.message, **({"fieldPath": rule.field} if rule.field else {})}
            node = schema
            for step in rule.path.split(".") if rule.path else ():
                node = node["properties"][step.removesuffix("[]")]
                node = node["items"] if step.endswith("[]") else node
            node.setdefault("x-kubernetes-validations", []).append(found)
    return schema
