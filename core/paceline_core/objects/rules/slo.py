"""The rules of the promise: the same for each class and each metric, so built once per place."""

from typing import Final

from paceline_core.objects.rules.rule import Rule, service_rule
from paceline_core.registry.enums import RequestClass

_KEYS: Final = ("p50", "p90", "p95", "p99")
_LONGEST_WINDOW: Final = "1s"


def slo_rules() -> tuple[Rule, ...]:
    """Rules on every class, then on every metric of every class."""
    return (
        *(rule for cls in RequestClass for rule in _class_rules(f"spec.classes.{cls}")),
        *(
            rule
            for cls in RequestClass
            for metric in ("ttft", "tpot", "e2e")
            for rule in _quantile_rules(f"spec.classes.{cls}.slo.{metric}")
        ),
    )


def _class_rules(path: str) -> tuple[Rule, ...]:
    shorter = " && ".join(
        f"(!has(self.slo.ttft.{key}) || duration(self.batchWindow) < duration(self.slo.ttft.{key}))" for key in _KEYS
    )
    above = " && ".join(
        f"(!has(self.ttft.{key}) || !has(self.e2e.{key}) || duration(self.ttft.{key}) <= duration(self.e2e.{key}))"
        for key in _KEYS
    )
    return (
        service_rule(
            f"{path}.availability",
            "self >= 0.5 && self < 1.0",
            "must be from 0.5 to below 1, like 0.999: nothing answers every request for ever",
        ),
        service_rule(
            f"{path}.batchWindow",
            f"duration(self) <= duration('{_LONGEST_WINDOW}')",
            f"every request waits as long for company: write at most {_LONGEST_WINDOW}, like 3ms (interactive) or 20ms",
        ),
        service_rule(
            path,
            f"!has(self.batchWindow) || !has(self.slo) || !has(self.slo.ttft) || ({shorter})",
            "batchWindow alone would break the ttft promise: make it shorter than every ttft target",
            ".batchWindow",
        ),
        service_rule(
            f"{path}.slo",
            f"!has(self.ttft) || !has(self.e2e) || ({above})",
            "an e2e target is below the ttft target of the same quantile: raise e2e or lower ttft",
            ".e2e",
        ),
    )


def _quantile_rules(path: str) -> tuple[Rule, ...]:
    pairs = [(low, high) for index, low in enumerate(_KEYS) for high in _KEYS[index + 1 :]]
    ascending = " && ".join(
        f"(!has(self.{low}) || !has(self.{high}) || duration(self.{low}) <= duration(self.{high}))"
        for low, high in pairs
    )
    positive = " && ".join(f"(!has(self.{key}) || duration(self.{key}) > duration('0s'))" for key in _KEYS)
    return (
        service_rule(
            path,
            ascending,
            "a higher quantile cannot have a lower limit: make p50 <= p90 <= p95 <= p99",
        ),
        service_rule(
            path,
            positive,
            "no request takes no time: make every limit longer than 0s",
        ),
    )
