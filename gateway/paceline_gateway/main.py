"""`python -m paceline_gateway.main`: one gateway, configured by the file that PACELINE_CONFIG names.

Exit status: 0 after a drain, 2 when the configuration or a port is wrong, 1 on any other error; one line says why.
"""

import paceline_core.early_sigterm  # noqa: F401 - for its effect, before the seconds of imports

# isort: split
import asyncio
import gc
import os
import sys
from collections.abc import Mapping

import uvloop

from paceline_core.clock import Clock, SystemClock
from paceline_core.config import LEVEL_VARIABLE, collector_configured, from_environment, tracing_enabled
from paceline_core.errors import PacelineError
from paceline_core.kube.connect import connect
from paceline_core.process import explain_failure, on_signals
from paceline_core.telemetry import BackgroundWriter, configure, get_logger
from paceline_gateway.config import GatewayConfig
from paceline_gateway.process import GatewayProcess, ListenSockets
from paceline_gateway.telemetry.metrics import LogSinks
from paceline_gateway.telemetry.trace import NoTracing, RequestTracing

_log = get_logger(__name__)


def main() -> int:
    """Run until a signal; returns the exit status."""
    lines = configure("gateway", os.environ.get(LEVEL_VARIABLE, "INFO"))
    try:
        config = from_environment(GatewayConfig)
        ports = ListenSockets.take(config)
        gc.freeze()  # modules live forever: a full collection need not visit them and delay requests
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(config, ports, lines))
    except PacelineError as error:
        return explain_failure("gateway", error)
    except Exception:  # noqa: BLE001 - the process ends here: one log line and no trace for its user
        _log.exception("the gateway failed")
        return 1
    return 0


async def _run(config: GatewayConfig, ports: ListenSockets, lines: BackgroundWriter) -> None:
    clock = SystemClock()
    outlets = LogSinks(lines, _tracing(config.name, clock, os.environ))
    cluster = await connect(config.cluster, config.namespace, clock, "slices", config.key_namespace)
    stop, abort = asyncio.Event(), asyncio.Event()
    on_signals(lambda: abort.set() if stop.is_set() else stop.set())  # the first signal drains, the second cuts
    try:
        await GatewayProcess(config, cluster, clock, ports, outlets).run(stop, abort)
    finally:
        await cluster.close()


def _tracing(name: str, clock: Clock, environ: Mapping[str, str]) -> RequestTracing:
    """Tracing as the environment configures it."""
    if not tracing_enabled(environ) or not collector_configured(environ):
        return NoTracing()
    try:
        from paceline_gateway.telemetry.spans import RequestSpanWriter  # noqa: PLC0415 - none of it where tracing is off
    except ImportError as error:
        _log.warning("no request is traced: install paceline[tracing]", extra={"reason": str(error)})
        return NoTracing()
    return RequestSpanWriter.create(name, clock)


if __name__ == "__main__":
    sys.exit(main())
