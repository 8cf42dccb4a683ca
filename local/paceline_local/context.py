"""What every part of one run shares."""

from dataclasses import dataclass

from paceline_core.clock import Clock
from paceline_local.health import Prober
from paceline_local.preflight import PortPool
from paceline_local.rundir import RunDir


@dataclass(frozen=True, slots=True)
class RunContext:
    """A run's directory, ports and time, how its processes are probed, the gateway's URL, the parts' log level,
    and the origins of pages that may read answers."""

    run: RunDir
    ports: PortPool
    clock: Clock
    prober: Prober
    endpoint: str
    log_level: str = "INFO"
    cors_origins: tuple[str, ...] = ()
