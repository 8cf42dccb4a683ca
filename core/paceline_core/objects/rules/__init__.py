"""One table of cross-field rules, from which the CRDs and local validation are both made."""

from typing import Final

from paceline_core.objects.rules.other_kinds import ACCELERATOR_RULES, ROUTE_RULES, TENANT_RULES
from paceline_core.objects.rules.rule import Rule, places
from paceline_core.objects.rules.service import SERVICE_RULES

__all__ = ["RULES", "Rule", "places"]

RULES: Final[tuple[Rule, ...]] = (*SERVICE_RULES, *TENANT_RULES, *ROUTE_RULES, *ACCELERATOR_RULES)
