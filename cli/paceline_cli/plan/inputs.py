"""Subject of a plan, from a manifest or from a model folder and options. Every refusal names the option and the fix."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any, Final, Literal

from paceline_cli.commands.chosen_service import ChosenService
from paceline_cli.commands.trace_options import duration
from paceline_core.errors import InvalidInput
from paceline_core.objects import ManifestError, ResolvedService
from paceline_core.objects.field_errors import did_you_mean
from paceline_core.objects.resolved import Target
from paceline_core.registry import RequestClass
from paceline_planner.accelerators import CATALOGUE
from paceline_planner.coldstart import unknown_names
from paceline_planner.goodput import FurtherLimit, LatencyPromise
from paceline_planner.hardware import Accelerator, Dtype
from paceline_planner.model_config import planned_shape
from paceline_planner.shapes import CATALOGUE as SHAPES
from paceline_planner.shapes import QUANTIZATIONS, ModelShape
from paceline_planner.steptime import Caps
from paceline_workers.model_source import locate, read_object

SLO_EXAMPLE: Final = "ttft:p95=500ms,tpot:p95=50ms"
MAX_SEQS: Final = 256
_METRICS: Final[tuple[Literal["ttft", "tpot"], ...]] = ("ttft", "tpot")
_TARGET = re.compile(r"(?P<metric>\w+)(?::p(?P<quantile>[0-9.]+))?=(?P<limit>\S+)")
_KV_DTYPES = {"bf16": Dtype.BF16, "fp16": Dtype.FP16, "fp32": Dtype.FP32, "fp8": Dtype.FP8, "int8": Dtype.INT8}


@dataclass(frozen=True, slots=True)
class Subject:
    """A model to plan for, where it may run, what its engine may do, and what it promises, if it says so."""

    name: str
    shape: ModelShape
    accelerators: tuple[Accelerator, ...]
    caps: Caps
    promise: LatencyPromise | None = None
    service: ResolvedService | None = None
    document: Mapping[str, Any] = field(default_factory=dict)

    @property
    def context(self) -> int:
        """Tokens of the longest request: maxModelLen, or the model's own."""
        own = self.service.engine.max_model_len if self.service else None
        return min(own or self.shape.max_context, self.shape.max_context)


def of_model(model: str) -> Subject:
    """A folder with a config.json, or a shape that the planner knows; on all accelerators that workers compute on."""
    folder = Path(model)
    if folder.exists() or "/" in model:
        if not folder.is_dir():
            problem = "is a file; name its folder" if folder.exists() else "does not exist; name a model folder"
            raise InvalidInput("--model", f"{model} {problem}")
        if not (folder / "config.json").is_file():
            fix = "name a model folder as Hugging Face writes it"
            raise InvalidInput("--model", f"{model} holds no config.json; {fix}, or one of {', '.join(SHAPES)}")
        name = folder.resolve().name
        config = read_object(folder / "config.json")
        try:
            shape = planned_shape(config, name=name)
        except InvalidInput as error:
            raise InvalidInput("--model", f"{folder / 'config.json'}: {error}") from None
    elif model in SHAPES:
        name, shape = model, SHAPES[model]
    else:
        hint = did_you_mean(model, list(SHAPES))
        known = f"a folder with a config.json, or one of {', '.join(SHAPES)}"
        raise InvalidInput("--model", f"{model!r} is neither a folder nor a known model{hint}; write {known}")
    served = tuple(device for device in CATALOGUE.values() if device.name != "cpu" and _nvidia(device))
    return Subject(name, shape, served, Caps(sequences=MAX_SEQS))


def of_service(chosen: ChosenService, request_class: RequestClass) -> Subject:
    """A service of a manifest, on its pools' accelerators, or on the one that it emulates. Raises InvalidInput."""
    service, engine = chosen.service, chosen.service.engine
    if engine.emulation and (unknown := [*unknown_names(engine.emulation)]):
        raise ManifestError(unknown)
    names = [engine.emulation.accelerator] if engine.emulation else [pool.accelerator for pool in service.pools]
    known = chosen.accelerators
    shape = _service_shape(service)
    if engine.kv_dtype in _KV_DTYPES:
        shape = replace(shape, kv_dtype=_KV_DTYPES[engine.kv_dtype])
    if service.model.quantization in QUANTIZATIONS:
        shape = replace(shape, quantization=QUANTIZATIONS[service.model.quantization])
    return Subject(
        service.key,
        shape,
        tuple(accelerator(name, known) for name in dict.fromkeys(names)),
        Caps(engine.step_tokens, engine.max_seqs),
        promise_of(service.classes[request_class].targets),
        service,
        chosen.manifest.document,
    )


def _service_shape(service: ResolvedService) -> ModelShape:
    if service.engine.emulation is not None:
        return SHAPES[service.engine.emulation.model]
    try:
        return planned_shape(read_object(locate(service.model.source) / "config.json"), name=service.key)
    except InvalidInput as error:
        fix = "put its files here, or plan with --model"
        raise InvalidInput("spec.model.source", f"a plan reads config.json, which fails ({error}); {fix}") from None


def _nvidia(device: Accelerator) -> bool:
    return device.resource == "nvidia.com/gpu"


def accelerator(name: str, known: Mapping[str, Accelerator] = CATALOGUE) -> Accelerator:
    """The accelerator of that name, a profile before a built-in one."""
    if name not in known:
        hint = did_you_mean(name, list(known))
        fix = f"write one of {', '.join(known)}, or add an AcceleratorProfile {name} to the file"
        raise InvalidInput("--accelerator", f"{name!r} is not known{hint}; {fix}")
    return known[name]


def accelerators(text: str, known: Mapping[str, Accelerator] = CATALOGUE) -> tuple[Accelerator, ...]:
    """Names that commas separate, in any case."""
    names = [name for part in text.split(",") if (name := part.strip().lower())]
    if not names:
        raise InvalidInput("--accelerator", f"names none; write one of {', '.join(known)}")
    return tuple(accelerator(name, known) for name in dict.fromkeys(names))


def promise_of(targets: Sequence[Target]) -> LatencyPromise | None:
    """The promise of all targets of TTFT and TPOT; None if neither is promised."""
    extra = next((target.per_prompt_token for target in targets if target.metric == "ttft"), 0.0)
    limits = [
        FurtherLimit(metric, target.quantile, target.seconds)
        for metric in _METRICS
        for target in targets
        if target.metric == metric
    ]
    return _promise_of_limits(limits, extra) if limits else None


def _promise_of_limits(limits: Sequence[FurtherLimit], per_prompt_token: float = 0.0) -> LatencyPromise:
    """The highest quantile of TTFT and the strictest limit of TPOT, and the others also."""
    ttft = max((one for one in limits if one.metric == "ttft"), key=lambda one: one.quantile, default=None)
    tpot = min((one for one in limits if one.metric == "tpot"), key=lambda one: one.seconds, default=None)
    return LatencyPromise(
        ttft_s=ttft.seconds if ttft else inf,
        tpot_s=tpot.seconds if tpot else inf,
        ttft_quantile=(ttft or tpot or limits[0]).quantile,
        tpot_quantile=(tpot or ttft or limits[0]).quantile,
        per_prompt_token=per_prompt_token,
        also=tuple(one for one in limits if one not in (ttft, tpot)),
    )


def one_quantile(promise: LatencyPromise) -> LatencyPromise:
    """The promise, for a quote, which puts other quantiles in place of its own. Raises InvalidInput if it has more."""
    if promise.also:
        fix = f"write --slo with one limit of each, {SLO_EXAMPLE}, for example"
        raise InvalidInput("--slo", f"a quote prices one limit of ttft and one of tpot, and there are more; {fix}")
    return promise


def promise(text: str) -> LatencyPromise:
    """`ttft:p95=500ms,tpot:p95=50ms`; without a quantile p95 is meant."""
    found: dict[tuple[str, float], FurtherLimit] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _TARGET.fullmatch(part)
        if match is None or match["metric"] not in ("ttft", "tpot"):
            raise InvalidInput("--slo", f"{part!r} is no target of ttft or tpot; write {SLO_EXAMPLE}")
        limit, quantile = duration("--slo", match["limit"]), float(match["quantile"] or 95) / 100
        if not 0 < quantile < 1 or limit <= 0:
            raise InvalidInput("--slo", f"{part!r}: the quantile is above p0 and below p100, the limit above 0s")
        metric: Literal["ttft", "tpot"] = "ttft" if match["metric"] == "ttft" else "tpot"
        if (metric, quantile) in found:
            raise InvalidInput("--slo", f"{metric} p{quantile * 100:g} is promised twice; keep one of them")
        found[metric, quantile] = FurtherLimit(metric, quantile, limit)
    if not found:
        raise InvalidInput("--slo", f"promises nothing; write {SLO_EXAMPLE}")
    return _promise_of_limits(list(found.values()))
