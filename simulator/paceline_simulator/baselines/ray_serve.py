"""Ray Serve's request-based autoscaler.

Source: ray-project/ray b7f4259e (release 2.60.0), python/ray/serve/autoscaling_policy.py
(_core_replica_queue_length_policy, _apply_scaling_factors, _apply_delay_logic, _get_cold_start_scale_up_replicas),
_private/autoscaling_state.py (the total of running and queued requests, averaged over the look-back period) and
config.py (AutoscalingConfig). Its loop runs every 0.1 s on samples that arrive every 10 s; here it runs on each
observation, every second, which delays of 30 and 600 s hardly notice. The average weighs samples by the time until the
next one. Left out: the choice of maximum or minimum in place of the mean, and custom policies.
"""

from dataclasses import dataclass
from math import ceil

from paceline_autoscaler.model.observation import only_pool
from paceline_autoscaler.model.series import Series, TimedValue, mean, newer_than
from paceline_autoscaler.types import Observation
from paceline_simulator.baselines.signals import gateways_silent, open_requests

_ROUNDING_S = 1e-6


@dataclass(frozen=True, slots=True)
class RayServeState:
    """Open requests of the look-back period; since when it has wanted to go `direction`, 1 or -1, 0 for neither."""

    requests: Series = ()
    direction: int = 0
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class RayServe:
    """`target` open requests a replica; a change must be wanted without a break for its delay."""

    target: float = 2.0
    look_back_s: float = 30.0
    upscale_delay_s: float = 30.0
    downscale_delay_s: float = 600.0
    upscaling_factor: float = 1.0
    downscaling_factor: float = 1.0
    period_s: float = 1.0
    lag_s: float = 10.0

    def initial_state(self) -> RayServeState:
        return RayServeState()

    def decide(self, observation: Observation, own: RayServeState) -> tuple[dict[str, int], RayServeState]:
        pool, now = only_pool(observation), observation.now
        requests = newer_than(own.requests, now, self.look_back_s)
        if not gateways_silent(observation):
            requests = (*requests, TimedValue(now, open_requests(observation)))
        wanted, direction, since = self.scale(mean(requests), pool.ready, pool.desired, now, own)
        return {pool.name: wanted}, RayServeState(requests, direction, since)

    def scale(
        self, requests: float, running: int, ordered: int, now: float, own: RayServeState
    ) -> tuple[int, int, float]:
        """Replicas, and the direction and its start to remember; `running` replicas of `ordered` serve."""
        if running == 0 and requests > 0:
            return max(ceil(self.upscaling_factor), ordered), own.direction, own.since
        desired = ordered if running == 0 else self.desired(running * (requests / (self.target * running)), running)
        if running == 0 and desired > 0:
            return desired, own.direction, own.since
        return self.delayed(desired, ordered, now, own)

    def desired(self, replicas: float, running: int) -> int:
        """Replicas after the factor of the direction; at least one step down when a small factor would stick."""
        factor = self.upscaling_factor if replicas > running else self.downscaling_factor
        scaled = ceil(running + factor * (replicas - running))
        stuck = ceil(replicas) < running and scaled == running
        return max(scaled - stuck, 0)

    def delayed(self, desired: int, ordered: int, now: float, own: RayServeState) -> tuple[int, int, float]:
        """What is ordered until a change has been wanted for its delay; only a last replica goes to zero."""
        direction = (desired > ordered) - (desired < ordered)
        if direction == 0:
            return ordered, 0, 0.0
        since = own.since if own.direction == direction else now
        delay = self.upscale_delay_s if direction > 0 else self.downscale_delay_s
        if now - since + _ROUNDING_S < delay:
            return ordered, direction, since
        return (desired if direction > 0 or ordered == 1 else max(desired, 1)), 0, 0.0
