"""The settings among which each baseline is tuned: its own knobs, about 48 points, the source's defaults among them.

A static pool has its number of replicas. Where a source advises against a value, it is left out; periods and lags are
not tuned, since they are what the source's own metrics allow.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from paceline_autoscaler.policies.constant import Constant
from paceline_autoscaler.policies.replica_policy import Baseline, BaselinePolicy, ProductionPolicy, ReplicaPolicy
from paceline_autoscaler.policies.token_rate import TokenRate
from paceline_simulator.baselines.aibrix import Aibrix
from paceline_simulator.baselines.dynamo import Dynamo
from paceline_simulator.baselines.hpa import Hpa, hpa_concurrency, hpa_kv, hpa_queue
from paceline_simulator.baselines.hpa_behavior import Behavior
from paceline_simulator.baselines.keda import keda
from paceline_simulator.baselines.kpa import Kpa
from paceline_simulator.baselines.ray_serve import RayServe
from paceline_simulator.baselines.slo_recipe import SloRecipe
from paceline_simulator.baselines.wva import Wva
from paceline_simulator.policies import BASELINES, SLO, STATIC

MOST = 40


@dataclass(frozen=True, slots=True)
class Setting:
    """A policy with its parameters; `label` names them, and "default" those of its source."""

    policy: str
    label: str
    baseline: Baseline[Any] | None = None

    def made(self) -> ReplicaPolicy:
        """A fresh policy with this setting."""
        return ProductionPolicy() if self.baseline is None else BaselinePolicy(self.baseline)


def default(policy: str) -> Setting:
    """A policy as it is delivered; a static pool has no default."""
    return Setting(policy, "default", None if policy == SLO else BASELINES[policy])


def settings(policy: str) -> list[Setting]:
    """All points of a baseline; of the production policy the one setting that it has."""
    if policy == SLO:
        return [default(SLO)]
    made = {STATIC: _static, **_GRIDS}[policy]()
    return [Setting(policy, label, baseline) for label, baseline in made]


Points = Iterator[tuple[str, Baseline[Any]]]


def _static() -> Points:
    return ((f"replicas={count}", Constant(count)) for count in range(1, MOST + 1))


def _hpa(name: str, unit: Mapping[float, Hpa]) -> Points:
    for (target, hpa), hold in product(unit.items(), (60, 300, 900)):
        yield f"{name}={target:g} down={hold}s", replace(hpa, behavior=_held(hpa.behavior, hold))


def _held(behavior: Behavior, seconds: float) -> Behavior:
    """With another stabilization window for scale-down."""
    return replace(behavior, down=replace(behavior.down, stabilization_s=seconds))


def _hpa_queue() -> Points:
    targets = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 4, 5, 7, 10, 15, 20, 30)
    return _hpa("waiting", {target: hpa_queue(target) for target in targets})


def _hpa_kv() -> Points:
    targets = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8, 0.9)
    return _hpa("kv", {target: hpa_kv(target) for target in targets})


def _hpa_concurrency() -> Points:
    targets = (4, 8, 12, 16, 20, 25, 30, 40, 50, 60, 80, 100, 120, 150, 179, 220)
    return _hpa("open", {target: hpa_concurrency(target) for target in targets})


def _keda() -> Points:
    running = (8, 16, 24, 32, 48, 64, 96, 128)
    for waiting, target, hold in product((1, 4, 16), running, (120, 300)):
        made = keda(waiting, target)
        yield f"queued={waiting} running={target} down={hold}s", replace(made, behavior=_held(made.behavior, hold))


def _kpa() -> Points:
    concurrency = (4, 8, 12, 16, 24, 32, 48, 64, 80, 100, 150, 200)
    for target, window, delay in product(concurrency, (60, 180), (0, 300)):
        made = Kpa(concurrency=target, stable_window_s=window, scale_down_delay_s=delay)
        yield f"concurrency={target} window={window}s delay={delay}s", made


def _aibrix() -> Points:
    targets = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    for target, strategy, cooldown in product(targets, ("APA", "KPA"), (300, 900)):
        made = Aibrix("APA" if strategy == "APA" else "KPA", target=target, down_cooldown_s=cooldown)
        yield f"{strategy} kv={target:g} cooldown={cooldown}s", made


def _wva() -> Points:
    for kv, queue, (up, down) in product((0.3, 0.5, 0.8, 0.9), (1, 2, 5, 10), ((0.6, 0.45), (0.75, 0.6), (0.85, 0.7))):
        made = Wva(kv_threshold=kv, queue_threshold=queue, scale_up=up, scale_down=down)
        yield f"kv={kv:g} queue={queue} up={up:g} down={down:g}", made


def _dynamo(*, load: bool) -> Points:
    ttft, itl = (0.25, 0.5, 1.0, 2.0), (0.02, 0.03, 0.05, 0.1)
    for first, between, interval in product(ttft, itl, (60, 120, 180)):
        made = Dynamo(load=load, ttft_s=first, itl_s=between, interval_s=interval)
        yield f"ttft={first:g}s itl={between:g}s interval={interval}s", made


def _ray() -> Points:
    targets = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)
    for target, up, down in product(targets, (10, 30), (300, 600)):
        made = RayServe(target=target, upscale_delay_s=up, downscale_delay_s=down)
        yield f"target={target} up={up}s down={down}s", made


def _slo_recipe() -> Points:
    ups = (0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.8)
    for up, share, hold in product(ups, (0.5, 0.727), (180, 600)):
        made = SloRecipe(up=up, down=round(up * share, 3))
        yield f"up={up:g} down={made.down:g} hold={hold}s", replace(made, behavior=_held(made.behavior, hold))


def _token_rate() -> Points:
    thresholds = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    for threshold, weight, hold in product(thresholds, (1.0, 2.0, 4.0), (300, 900)):
        made = TokenRate(threshold=threshold, output_weight=weight, hold_s=hold)
        yield f"threshold={threshold:g} output={weight:g} hold={hold}s", made


_GRIDS = {
    "hpa-queue": _hpa_queue,
    "hpa-kv": _hpa_kv,
    "hpa-concurrency": _hpa_concurrency,
    "keda": _keda,
    "kpa": _kpa,
    "aibrix": _aibrix,
    "wva": _wva,
    "dynamo-throughput": lambda: _dynamo(load=False),
    "dynamo-load": lambda: _dynamo(load=True),
    "ray": _ray,
    "slo-recipe": _slo_recipe,
    "token-rate": _token_rate,
}
POLICIES = (SLO, STATIC, *_GRIDS)
