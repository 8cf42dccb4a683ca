"""`python -m paceline_autoscaler.main`: one autoscaler, configured by the file that PACELINE_CONFIG names.

Exit status: 0 after a signal, 2 when the configuration or the port is wrong, 1 on anything else; one line says why.
"""

import paceline_core.early_sigterm  # noqa: F401 - for its effect, before the seconds of imports

# isort: split
import asyncio
import os
import socket
import sys

from paceline_autoscaler.process import AutoscalerConfig, AutoscalerDeps, serve
from paceline_core.auth import FileSigner, Signer
from paceline_core.clock import SystemClock
from paceline_core.config import LEVEL_VARIABLE, from_environment
from paceline_core.errors import PacelineError
from paceline_core.kube.connect import connect
from paceline_core.process import bind, explain_failure, on_signals
from paceline_core.telemetry import configure


def main() -> int:
    configure("autoscaler", os.environ.get(LEVEL_VARIABLE, "INFO"))
    try:
        config = from_environment(AutoscalerConfig)
        signer = FileSigner(config.signing_key, "autoscaler")
        with bind(config.listen) as listening:
            asyncio.run(_run(config, signer, listening))
    except PacelineError as error:
        return explain_failure("autoscaler", error)
    return 0


async def _run(config: AutoscalerConfig, signer: Signer, listening: socket.socket) -> None:
    clock = SystemClock()
    cluster = await connect(config.cluster, config.namespace, clock, workers="pods")
    stop = asyncio.Event()
    on_signals(stop.set)
    try:
        await serve(config, AutoscalerDeps(cluster, clock, signer), listening, stop)
    finally:
        await cluster.close()


if __name__ == "__main__":
    sys.exit(main())
