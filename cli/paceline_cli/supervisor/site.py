"""What every part of one run shares."""

from dataclasses import dataclass

from paceline_cli.supervisor.probes import Prober
from paceline_cli.supervisor.rundir import RunDir
from paceline_core.clock import Clock

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Site:
    """The run's directory, its time, its way to ask processes how they are, and its children's log level."""

    run: RunDir
    clock: Clock
    prober: Prober
    log_level: str = "INFO"
