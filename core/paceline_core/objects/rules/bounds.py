"""Durations within reason: none that lets a wait never begin, none that outlasts whoever waits."""

from typing import Final

from paceline_core.objects.rules.rule import Rule, service_rule
from paceline_core.registry.enums import RequestClass
from paceline_core.units import seconds


def _within(path: str, least: str, most: str, example: str) -> Rule:
    return service_rule(
        path,
        f"duration(self) >= duration('{least}') && duration(self) <= duration('{most}')",
        f"must be from {least} to {most}, like {example}",
        lambda it: seconds(least) <= seconds(it) <= seconds(most),
    )


DURATION_RULES: Final[tuple[Rule, ...]] = (
    *(_within(f"spec.classes.{cls}.holdTimeout", "1ms", "24h", "2m") for cls in RequestClass),
    _within("spec.engine.emulate.coldStart", "0s", "1h", "30s"),
    _within("spec.scaling.scaleToZero.after", "1s", "168h", "15m"),
    _within("spec.rollout.canary.window", "1s", "24h", "5m"),
    _within("spec.rollout.drainTimeout", "1s", "24h", "5m"),
)
