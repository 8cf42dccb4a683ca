"""Numeric defaults are here and not in the CRD: an upgrade may change one without rewriting stored objects.

Pure functions from an object to its resolved form. They take validated objects; values that come from another object
(an accelerator's price, a model's context) stay None for the code that has it.
"""

from decimal import Decimal
from typing import Final, TypeVar

from paceline_core.objects import resolved as r
from paceline_core.objects.fields import Metric
from paceline_core.objects.naming import ANNOTATION_PAUSE_REASON, ANNOTATION_PAUSE_UNTIL, revision
from paceline_core.objects.route import InferenceRoute
from paceline_core.objects.service import (
    Budget,
    Canary,
    InferenceService,
    Pool,
    Quantiles,
    Rollout,
    Scaling,
    ServiceClass,
    ServiceSpec,
)
from paceline_core.objects.service_runtime import Engine
from paceline_core.objects.tenant import MonthlyBudget, Tenant
from paceline_core.registry.enums import RequestClass
from paceline_core.units import dollars, quantity, seconds

T = TypeVar("T")

_CLASS_DEFAULTS: Final = {
    RequestClass.INTERACTIVE: r.ResolvedClass(
        RequestClass.INTERACTIVE, (), 0.999, 28 * 86400.0, 4096, 0.003, 256, 120.0
    ),
    RequestClass.BATCH: r.ResolvedClass(RequestClass.BATCH, (), 0.999, 28 * 86400.0, 8192, 0.020, 1024, 600.0),
    RequestClass.OFFLINE: r.ResolvedClass(RequestClass.OFFLINE, (), 0.999, 28 * 86400.0, 16384, 0.040, 4096, 3600.0),
}
_QUANTILES: Final = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}


def resolve(service: InferenceService) -> r.ResolvedService:
    spec, runtime = service.spec, service.spec.runtime
    return r.ResolvedService(
        namespace=service.namespace,
        name=service.name,
        uid=service.metadata.uid,
        revision=revision(service),
        model=_model(service),
        runtime=r.ResolvedRuntime(
            runtime.name,
            runtime.image,
            runtime.args,
            runtime.env,
            runtime.port,
            runtime.workload_ref.name if runtime.workload_ref else None,
        ),
        engine=_engine(spec.engine),
        classes={cls: _class(cls, getattr(spec.classes, cls)) for cls in RequestClass},
        pools=tuple(_pool(pool, spec) for pool in spec.pools),
        scaling=_scaling(spec.scaling),
        rollout=_rollout(spec.rollout),
        filters=spec.filters,
        sample_ratio=_or(spec.telemetry.tracing.sample_ratio, 0.0),
        log_prompts=spec.telemetry.log_prompts,
        pause_until=service.metadata.annotations.get(ANNOTATION_PAUSE_UNTIL),
        pause_reason=service.metadata.annotations.get(ANNOTATION_PAUSE_REASON, ""),
    )


def resolve_tenant(tenant: Tenant) -> r.ResolvedTenant:
    spec, limits = tenant.spec, tenant.spec.limits
    classes = spec.classes or tuple(RequestClass)
    first = RequestClass.INTERACTIVE if RequestClass.INTERACTIVE in classes else classes[0]
    monthly = limits.monthly or MonthlyBudget()
    return r.ResolvedTenant(
        namespace=tenant.namespace,
        name=tenant.name,
        services=spec.services,
        classes=classes,
        default_class=spec.default_class or first,
        weight=_or(spec.weight, 1),
        requests_per_minute=limits.requests_per_minute,
        input_tokens_per_minute=limits.input_tokens_per_minute,
        output_tokens_per_minute=limits.output_tokens_per_minute,
        concurrency=limits.concurrency,
        monthly_tokens=monthly.tokens,
        monthly_dollars=_dollars(monthly.dollars),
        on_store_failure=spec.on_store_failure,
    )


def resolve_route(route: InferenceRoute) -> r.ResolvedRoute:
    spec = route.spec
    cascade, degrade = spec.cascade, spec.degrade
    return r.ResolvedRoute(
        namespace=route.namespace,
        name=route.name,
        model=spec.model,
        backends=tuple((backend, _or(backend.weight, 1)) for backend in spec.backends),
        matches=spec.matches,
        fallback=spec.fallback,
        attempts=_or(spec.retry.attempts, 3 if spec.fallback or len(spec.backends) > 1 else 2),
        retry_budget=_or(spec.retry.budget, 0.2),
        cascade=r.ResolvedCascade(cascade.first, frozenset(cascade.escalate_on or ("error", "refusal")))
        if cascade
        else None,
        degrade=r.ResolvedDegrade(degrade.trigger, degrade.model, degrade.max_tokens, _seconds(degrade.after, 10.0))
        if degrade
        else None,
    )


def _model(service: InferenceService) -> r.ResolvedModel:
    model = service.spec.model
    return r.ResolvedModel(
        source=model.source,
        revision=model.revision,
        served_name=model.served_name or service.name,
        quantization=model.quantization or "none",
        tokenizer=model.tokenizer,
        adapters=model.adapters,
    )


def _engine(engine: Engine) -> r.ResolvedEngine:
    cache, draft, emulate = engine.kv_cache, engine.speculative, engine.emulate
    return r.ResolvedEngine(
        max_model_len=engine.max_model_len,
        max_seqs=_or(engine.max_seqs, min(64, _or(engine.step_tokens, 64))),
        step_tokens=_or(engine.step_tokens, max(2048, _or(engine.max_seqs, 2048))),
        kv_dtype=cache.dtype or "auto",
        page_tokens=_or(cache.page_tokens, 64),
        attention_window=cache.attention_window,
        sink_tokens=_or(cache.sink_tokens, 0),
        host_offload_bytes=_bytes(cache.host_offload_bytes),
        disk_offload_bytes=_bytes(cache.disk_offload_bytes),
        prefix_cache=_or(engine.prefix_cache, True),
        batching=engine.batching or "continuous",
        batch_invariant=_or(engine.batch_invariant, False),
        warm_prefixes=engine.warm_prefixes,
        speculation=r.ResolvedSpeculation(draft.method, _or(draft.tokens, 4), draft.draft_model) if draft else None,
        pipeline=_or(engine.parallel.pipeline, 1),
        expert=_or(engine.parallel.expert, 1),
        emulation=r.ResolvedEmulation(emulate.accelerator, emulate.model, _seconds(emulate.cold_start, 30.0))
        if emulate
        else None,
    )


def _class(name: RequestClass, cls: ServiceClass) -> r.ResolvedClass:
    default = _CLASS_DEFAULTS[name]
    return r.ResolvedClass(
        name=name,
        targets=_targets(name, cls),
        availability=_or(cls.availability, default.availability),
        slo_window_s=_seconds(cls.slo_window, default.slo_window_s),
        max_tokens=_or(cls.max_tokens, default.max_tokens),
        batch_window_s=_seconds(cls.batch_window, default.batch_window_s),
        queue_limit=_or(cls.queue_limit, default.queue_limit),
        hold_timeout_s=_seconds(cls.hold_timeout, default.hold_timeout_s),
        reserved=_or(cls.reserved_percent, 0) / 100,
    )


def _targets(name: RequestClass, cls: ServiceClass) -> tuple[r.Target, ...]:
    metrics: tuple[tuple[Metric, Quantiles | None], ...] = (
        ("ttft", cls.slo.ttft), ("tpot", cls.slo.tpot), ("e2e", cls.slo.e2e),
    )  # fmt: skip
    ttft = cls.slo.ttft
    more = _seconds(None if ttft is None else ttft.per1k_prompt_tokens, 0.0) / 1000
    return tuple(
        r.Target(name, metric, quantile, seconds(limit), more if metric == "ttft" else 0.0)
        for metric, quantiles in metrics
        for key, quantile in _QUANTILES.items()
        if quantiles is not None and (limit := getattr(quantiles, key)) is not None
    )


def _pool(pool: Pool, spec: ServiceSpec) -> r.ResolvedPool:
    least = _or(pool.replicas.min, 0 if spec.scaling.scale_to_zero else 1)
    gpuless = pool.accelerator == "cpu" or spec.engine.emulate is not None
    gpus = _or(pool.gpus_per_replica, 0 if gpuless else 1)
    pipeline = _or(spec.engine.parallel.pipeline, 1)
    return r.ResolvedPool(
        name=pool.name,
        role=pool.role,
        accelerator=pool.accelerator,
        gpus=gpus,
        tensor=_or(spec.engine.parallel.tensor, max(gpus // pipeline, 1)),
        min=least,
        max=_or(pool.replicas.max, max(least, 1)),
        spot=pool.spot,
        node_selector=pool.node_selector,
        tolerations=pool.tolerations,
        pod=r.PodSettings(
            resources=pool.resources,
            affinity=pool.affinity,
            spread=pool.topology_spread_constraints,
            priority_class=pool.priority_class_name,
            labels=pool.pod_labels,
            annotations=pool.pod_annotations,
            volumes=pool.volumes,
        ),
    )


def _scaling(scaling: Scaling) -> r.ResolvedScaling:
    budget = scaling.budget or Budget()
    return r.ResolvedScaling(
        policy=scaling.policy,
        scale_to_zero_after_s=_seconds(scaling.scale_to_zero.after, 900.0) if scaling.scale_to_zero else None,
        budget_gpus=budget.gpus,
        budget_dollars_per_hour=_dollars(budget.dollars_per_hour),
    )


def _rollout(rollout: Rollout) -> r.ResolvedRollout:
    canary = rollout.canary or Canary()
    return r.ResolvedRollout(
        strategy=rollout.strategy,
        gpus=rollout.gpus,
        steps=canary.steps or (5, 25, 50, 100),
        window_s=_seconds(canary.window, 300.0),
        abort_on=frozenset(canary.abort_on or ("burn", "errors", "restarts")),
        drain_timeout_s=_seconds(rollout.drain_timeout, 300.0),
    )


def _or(value: T | None, default: T) -> T:
    return default if value is None else value


def _seconds(text: str | None, default: float) -> float:
    return default if text is None else seconds(text)


def _bytes(text: str | None) -> int:
    return 0 if text is None else quantity(text)


def _dollars(text: str | None) -> Decimal | None:
    return None if text is None else dollars(text)
