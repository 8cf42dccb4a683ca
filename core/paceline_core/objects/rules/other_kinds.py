"""The rules of Tenant, InferenceRoute and AcceleratorProfile."""

from typing import Final

from paceline_core.objects.fields import LABEL_PATTERN
from paceline_core.objects.rules.rule import Rule

_URL: Final = "^https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?$"
_ZERO: Final = "^0+([.]0+)?[A-Za-z]*$"


def _name_rule(kind: str, why: str) -> Rule:
    return Rule(
        kind,
        "",
        f"self.metadata.name.size() <= 63 && self.metadata.name.matches('{LABEL_PATTERN}')",
        f"name must be 1 to 63 lower-case letters, digits and dashes: {why}",
        ".metadata.name",
    )


TENANT_RULES: Final = (
    _name_rule("Tenant", "keys carry it as a label"),
    Rule(
        "Tenant",
        "spec",
        "!has(self.defaultClass) || !has(self.classes) || self.classes.size() == 0"
        " || self.defaultClass in self.classes",
        "the default class is not among the allowed classes: add it to classes, or choose one of them",
        ".defaultClass",
    ),
    Rule(
        "Tenant",
        "spec.services",
        "self.size() == 1 || !self.exists(s, s == '*')",
        "* already allows every service: remove the other entries, or remove *",
    ),
    Rule(
        "Tenant",
        "spec.limits.monthly",
        "has(self.tokens) || has(self.dollars)",
        "needs tokens or dollars",
    ),
)

ROUTE_RULES: Final = (
    _name_rule("InferenceRoute", "metrics carry it as a label"),
    Rule(
        "InferenceRoute",
        "spec",
        "!has(self.fallback) || !(self.model in self.fallback)",
        "a route cannot fall back to itself: remove its own model from fallback",
        ".fallback",
    ),
    Rule(
        "InferenceRoute",
        "spec",
        "!has(self.cascade) || self.cascade.first != self.model",
        "a cascade begins with another, smaller model: name that model's route or service",
        ".cascade.first",
    ),
    Rule(
        "InferenceRoute",
        "spec",
        "!has(self.degrade) || !has(self.degrade.model) || self.degrade.model != self.model",
        "a route cannot degrade to itself: name a smaller model",
        ".degrade.model",
    ),
    Rule(
        "InferenceRoute",
        "spec.backends",
        "self.exists(b, (!has(b.when) || b.when == 'always') && (!has(b.weight) || b.weight > 0))",
        "no backend takes ordinary traffic: give one a weight above 0 and when: always",
    ),
    Rule(
        "InferenceRoute",
        "spec.backends[]",
        "has(self.service) != has(self.url)",
        "needs exactly one of service and url",
    ),
    Rule(
        "InferenceRoute",
        "spec.backends[].url",
        f"self.matches('{_URL}')",
        "write http(s)://host[:port][/path], without user, query or fragment",
    ),
    Rule(
        "InferenceRoute",
        "spec.matches[]",
        "has(self.headers) || has(self.tenants)",
        "an empty match would apply to every request: set headers or tenants, or remove it",
    ),
    Rule(
        "InferenceRoute",
        "spec.degrade",
        "has(self.model) || has(self.maxTokens)",
        "needs model or maxTokens: what to serve instead",
    ),
)

ACCELERATOR_RULES: Final = (
    _name_rule("AcceleratorProfile", "pools name it"),
    Rule(
        "AcceleratorProfile",
        "spec.teraflops",
        "has(self.fp32) || has(self.tf32) || has(self.bf16) || has(self.fp16) || has(self.fp8) || has(self.int8)"
        " || has(self.int4) || has(self.fp4)",
        "needs at least one element type, like bf16",
    ),
    *(
        Rule(
            "AcceleratorProfile",
            f"spec.{field}",
            f"!self.matches('{_ZERO}')",
            "must be above zero",
        )
        for field in ("memory", "bandwidth")
    ),
)
