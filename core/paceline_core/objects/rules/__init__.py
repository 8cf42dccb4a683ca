"""One table of cross-field rules; the CRDs and local validation are both made from it."""

from collections.abc import Iterable
from typing import Any, Final

from paceline_core.objects.problems import Problem
from paceline_core.objects.rules.doubt import surely_broken
from paceline_core.objects.rules.others import ACCELERATOR_RULES, ROUTE_RULES, TENANT_RULES
from paceline_core.objects.rules.rule import Rule, broken, places
from paceline_core.objects.rules.service import SERVICE_RULES
from paceline_core.objects.schema import Loc

__all__ = ["RULES", "Rule", "places", "sure_violations", "violations"]

RULES: Final[tuple[Rule, ...]] = (*SERVICE_RULES, *TENANT_RULES, *ROUTE_RULES, *ACCELERATOR_RULES)


def violations(kind: str, document: Any) -> list[Problem]:
    """The rules of this kind that a well-formed document breaks."""
    return broken(_of(kind), document)


def sure_violations(kind: str, document: Any, faults: Iterable[Loc], misspelt: Iterable[Loc]) -> list[Problem]:
    """The rules of this kind that a document with these faults breaks whatever becomes of them."""
    return list(surely_broken(_of(kind), document, faults, misspelt))


def _of(kind: str) -> list[Rule]:
    return [rule for rule in RULES if rule.kind == kind]
