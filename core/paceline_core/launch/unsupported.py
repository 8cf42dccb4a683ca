"""Fields of objects that this version does not implement. The API only grows, so it already has these fields.

A service that uses one is refused with the field's name, never served without it. A route that uses one is served
without it; notes name the unused fields. Filter settings that the worker would refuse at its start are refused before.
Each implemented capability removes a row.

The API server refuses most of them by rules. It does not apply a rule to objects stored before the rule existed, and
cannot see that a list of words is blank.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from re import fullmatch

from paceline_core.objects.field_errors import KV_DTYPES, QUANTIZATIONS, STRATEGIES, FieldError
from paceline_core.objects.fields import FIXES, LABEL_KEY_PATTERN
from paceline_core.objects.resolved import ResolvedPool, ResolvedService
from paceline_core.objects.route import RouteSpec
from paceline_core.objects.rules.workload import FILTER_RULES
from paceline_core.objects.service_runtime import GPU_MAX_SEQS, GPU_PAGE_TOKENS, NO_WORDS, WORDS, listed_words
from paceline_core.units import cores, quantity

SOURCES = ("builtin://", "file://")
GPU_KV_DTYPES = ("fp8", "int8")
FILTERS = ("words",)


@dataclass(frozen=True, slots=True)
class Gap:
    """A field that is refused: its path, whether a service uses it, why and the fix, and the pools that use it."""

    field: str
    asked: Callable[[ResolvedService], object]
    message: str
    pools: Callable[[ResolvedService], Sequence[str]] = lambda _: ()

    def problem(self, service: ResolvedService) -> FieldError:
        names = self.pools(service)
        return FieldError(self.field, f"{self.message} (pool {', '.join(names)})" if names else self.message)


def _on_gpus(service: ResolvedService) -> Sequence[str]:
    return [] if service.emulated else [pool.name for pool in service.pools if pool.accelerator != "cpu"]


def _on_cpus(service: ResolvedService) -> Sequence[str]:
    return [] if service.emulated else [pool.name for pool in service.pools if pool.accelerator == "cpu"]


GAPS = (
    Gap(
        "spec.runtime.name",
        lambda s: s.runtime.name != "paceline",
        "only the built-in worker runs in this version; write paceline, or leave it out",
    ),
    Gap(
        "spec.runtime.args",
        lambda s: s.runtime.name == "paceline" and s.runtime.args,
        "the built-in worker takes no arguments; write its settings under spec.engine, and leave args out",
    ),
    Gap(
        "spec.runtime.port",
        lambda s: s.runtime.name == "paceline" and s.runtime.port,
        "the built-in worker chooses its port itself; leave it out",
    ),
    Gap(
        "spec.model.source",
        lambda s: s.runtime.name == "paceline" and not s.emulated and not s.model.source.startswith(SOURCES),
        "this version loads builtin://demo and file:///path; download the model's folder and name it as file:///path",
    ),
    Gap(
        "spec.model.quantization",
        lambda s: s.model.quantization not in QUANTIZATIONS,
        "weights are served as stored in this version; leave it out",
    ),
    Gap(
        "spec.model.tokenizer",
        lambda s: s.model.tokenizer,
        "the tokenizer must lie beside the weights in this version; leave it out",
    ),
    Gap("spec.model.adapters", lambda s: s.model.adapters, "adapters are not served in this version; leave them out"),
    Gap(
        "spec.engine.kvCache.dtype",
        lambda s: s.engine.kv_dtype not in KV_DTYPES,
        f"this version keeps keys and values in {', '.join(KV_DTYPES[1:])}; write one of them, or leave it out",
    ),
    Gap(
        "spec.engine.kvCache.dtype",
        lambda s: s.engine.kv_dtype in GPU_KV_DTYPES and _on_cpus(s),
        f"{' and '.join(GPU_KV_DTYPES)} are kept on GPUs alone; write bf16 or fp32, or leave it out",
        _on_cpus,
    ),
    Gap(
        "spec.engine.kvCache.pageTokens",
        lambda s: s.engine.page_tokens not in GPU_PAGE_TOKENS and _on_gpus(s),
        f"on GPUs a page holds {', '.join(map(str, GPU_PAGE_TOKENS))} tokens; write one of them, or leave it out",
        _on_gpus,
    ),
    Gap(
        "spec.engine.maxSeqs",
        lambda s: s.engine.max_seqs > GPU_MAX_SEQS and _on_gpus(s),
        f"on GPUs at most {GPU_MAX_SEQS} requests run at once; write at most so many, or leave it out",
        _on_gpus,
    ),
    Gap(
        "spec.engine.batchInvariant",
        lambda s: s.engine.batch_invariant and _on_gpus(s),
        "on GPUs results depend on the batch in this version; choose pools of cpu, or leave it out",
        _on_gpus,
    ),
    Gap(
        "spec.engine.speculative",
        lambda s: s.engine.speculation,
        "speculative decoding is not served in this version; leave it out",
    ),
    Gap(
        "spec.engine.parallel.tensor",
        lambda s: any(pool.tensor > 1 >= pool.gpus for pool in s.pools),
        "a replica is one device in this version; leave it out",
    ),
    Gap(
        "spec.engine.parallel.pipeline",
        lambda s: s.engine.pipeline > 1,
        "a replica is one device in this version; leave it out",
    ),
    Gap(
        "spec.engine.parallel.expert",
        lambda s: s.engine.expert > 1,
        "a replica is one device in this version; leave it out",
    ),
    Gap(
        "spec.rollout.strategy",
        lambda s: s.rollout.strategy not in STRATEGIES,
        "every change rolls replica by replica in this version; write rolling, or leave it out",
    ),
    Gap(
        "spec.rollout.drainTimeout",
        lambda s: s.rollout.drain_timeout_s <= 0,
        "a worker needs time to leave; write at least 1s, or leave it out",
    ),
    Gap(
        "spec.telemetry.logPrompts",
        lambda s: s.log_prompts,
        "prompts and answers are never logged in this version; leave it out",
    ),
)


def unsupported(service: ResolvedService) -> Iterator[FieldError]:
    """Every field that this version cannot serve, in the document's order."""
    yield from (gap.problem(service) for gap in GAPS if gap.asked(service))
    for index, one in enumerate(service.filters):
        if one.stage != "output" or one.name not in FILTERS:
            message = f"of filters, {', '.join(FILTERS)} runs in this version, with stage output; leave others out"
            yield FieldError(f"spec.filters[{index}]", message)
    for index, pool in enumerate(service.pools):
        for field, message in _pool(service, pool).items():
            yield FieldError(f"spec.pools[{index}].{field}", message)


def unsupported_route(route: RouteSpec) -> Iterator[FieldError]:
    """Faults because of which a route has no backend."""
    if not route.fallback and not any(backend.service and backend.weight != 0 for backend in route.backends):
        message = "this version does not forward to outside endpoints; name a service that takes traffic, or a fallback"
        yield FieldError("spec.backends", message)


def unused_fields(route: RouteSpec) -> Iterator[str]:
    """The fields that a route sets and that have no effect."""
    if route.cascade is not None:
        yield "spec.cascade"
    for place, backend in enumerate(route.backends):
        for field in ("url", "region"):
            if getattr(backend, field) is not None:
                yield f"spec.backends[{place}].{field}"


def repeated(route: RouteSpec) -> Iterator[str]:
    """The backends of a route that repeat an earlier one with another weight."""
    seen: dict[tuple[object, ...], int] = {}
    for place, backend in enumerate(route.backends):
        same = (backend.service, backend.url, backend.model, backend.region, backend.when)
        if (first := seen.setdefault(same, place)) != place:
            yield f"spec.backends[{place}] is spec.backends[{first}] again"


def _pool(service: ResolvedService, pool: ResolvedPool) -> Mapping[str, str]:
    problems = {}
    if pool.role != "both":
        problems["role"] = "prefill and decode are not split in this version; write both, or leave it out"
    if pool.accelerator != "cpu" and not service.emulated and not pool.gpus:
        problems["gpusPerReplica"] = f"a replica on {pool.accelerator} needs a GPU; write 1, or leave it out"
    if pool.gpus > 1:
        problems["gpusPerReplica"] = "a replica is one device in this version; leave it and engine.parallel out"
    # a schema cannot bound the keys of a map
    maps = {"podLabels": pool.pod.labels, "podAnnotations": pool.pod.annotations}
    return {
        **problems,
        **{
            f"{field}[{key[:80]}]": FIXES[LABEL_KEY_PATTERN]
            for field, given in maps.items()
            for key in given
            if len(key) > 317 or not fullmatch(LABEL_KEY_PATTERN, key)
        },
        **_amounts(pool),
    }


def _amounts(pool: ResolvedPool) -> Mapping[str, str]:
    """Kubernetes refuses a pod with a request above its limit only after it has accepted the Deployment."""
    asked, limits = pool.pod.resources.requests, pool.pod.resources.limits
    pairs: tuple[tuple[str, str | None, str | None, Callable[[str], float]], ...] = (
        ("cpu", asked.cpu, limits.cpu, cores),
        ("memory", asked.memory, limits.memory, quantity),
        ("ephemeral-storage", asked.ephemeral_storage, limits.ephemeral_storage, quantity),
    )
    return {
        f"resources.requests.{name}": f"{request} is above the limit of {limit}; raise the limit or lower the request"
        for name, request, limit, read in pairs
        if request and limit and read(request) > read(limit)
    }


def invalid_filters(service: ResolvedService) -> Iterator[FieldError]:
    """Every fault of the filters, with its field and the fix."""
    if not service.filters:
        return
    from paceline_core.cel import broken  # noqa: PLC0415 - takes 0.2 s and memory; few services have filters

    written = [one.model_dump(mode="json", by_alias=True) for one in service.filters]
    yield from broken(FILTER_RULES, {"spec": {"filters": written}})
    for index, one in enumerate(service.filters):
        if one.name == WORDS and one.config.get("words") and not listed_words(one.config):
            yield FieldError(f"spec.filters[{index}].config", NO_WORDS)
