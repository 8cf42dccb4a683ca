"""Of the choices that a field has, those that this version serves, where they are fewer: messages list them alone.

The API only grows, so the others stay in the schema; `launch.supported` refuses them by name.
"""

from collections.abc import Mapping
from typing import Final

from paceline_core.objects.service_policy import Strategy
from paceline_core.objects.service_runtime import KVDtype, Quantization

QUANTIZATIONS: Final[tuple[Quantization, ...]] = ("none",)
STRATEGIES: Final[tuple[Strategy, ...]] = ("rolling",)
KV_DTYPES: Final[tuple[KVDtype, ...]] = ("auto", "fp32", "bf16", "fp8", "int8")
SERVED: Final[Mapping[str, tuple[str, ...]]] = {
    "spec.model.quantization": QUANTIZATIONS,
    "spec.engine.kvCache.dtype": KV_DTYPES,
    "spec.rollout.strategy": STRATEGIES,
}
"""Field -> choices."""
