"""One table of cross-field rules; the CRDs and local validation are both made from it."""

from typing import Any, Final

from paceline_core.objects.field_errors import FieldError
from paceline_core.objects.rules.other_kinds import ACCELERATOR_RULES, ROUTE_RULES, TENANT_RULES
from paceline_core.objects.rules.rule import Rule, broken, places
from paceline_core.objects.rules.service import SERVICE_RULES

__all__ = ["RULES", "Rule", "places", "violations"]

RULES: Final[tuple[Rule, ...]] = (*SERVICE_RULES, *TENANT_RULES, *ROUTE_RULES, *ACCELERATOR_RULES)


def violations(kind: str, document: Any) -> list[FieldError]:
    """The rules of this kind that a well-formed document breaks."""
    return broken([rule for rule in RULES if rule.kind == kind], document)
