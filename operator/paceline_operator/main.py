"""`python -m paceline_operator.main`: one operator, configured by the file that PACELINE_CONFIG names.

Exit status: 0 after a signal, 2 when the configuration or the port is wrong, 1 on anything else; one line says why.
"""

import paceline_core.early_sigterm  # noqa: F401 - for its effect, before the seconds of imports

# isort: split
import asyncio
import gc
import os
import sys
from collections.abc import Callable

import uvloop

from paceline_core.clock import SystemClock
from paceline_core.config import LEVEL_VARIABLE, from_environment
from paceline_core.errors import PacelineError
from paceline_core.kube.client.client import KubeClient
from paceline_core.process import bind, explain_failure
from paceline_core.telemetry import configure, get_logger
from paceline_operator.config import OperatorConfig
from paceline_operator.manager import OperatorDeps, serve

_log = get_logger(__name__)


def main(wrap: Callable[[KubeClient], KubeClient] = lambda api: api) -> int:
    """Run until a signal; returns the exit status. `wrap` wraps the client of the API server, for tests."""
    configure("operator", os.environ.get(LEVEL_VARIABLE, "INFO"))
    try:
        config = from_environment(OperatorConfig)
        with bind(config.listen) as listening:
            # imported modules and most objects from watches live long: scan neither often
            gc.freeze()
            gc.set_threshold(20_000, 50, 100)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(serve(OperatorDeps(config, SystemClock(), wrap), listening))
    except PacelineError as error:
        return explain_failure("operator", error)
    except Exception:  # noqa: BLE001 - the process ends here: one line in the log's form, no traceback for its user
        _log.exception("the operator failed")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
