"""`python -m paceline_workers.main`: one worker's API process, configured by the file that PACELINE_CONFIG names.

Exit status: 0 after a drain, 2 when configuration, port or model folder are wrong or a setting asks for what this
machine has not, 1 when the engine cannot serve for another reason; the reason is then the last line on standard error.
"""

import paceline_core.early_sigterm  # noqa: F401 - for its effect, before the seconds of imports

# isort: split
import argparse
import os
import sys
from collections.abc import Sequence

import uvloop

from paceline_core.config import LEVEL_VARIABLE, from_environment
from paceline_core.errors import PacelineError
from paceline_core.process import explain_failure
from paceline_core.telemetry import configure
from paceline_workers.config import WorkerConfig
from paceline_workers.server.serve import serve, take_ports

ENGINE = (sys.executable, "-m", "paceline_workers.engine")


def main(engine_argv: Sequence[str] = ENGINE) -> int:
    """Run to the end; `engine_argv` is the program behind the engine's socket."""
    configure("worker", os.environ.get(LEVEL_VARIABLE, "INFO"))
    try:
        config = from_environment(WorkerConfig)
        with take_ports(config) as sockets:
            uvloop.run(serve(config, sockets, engine_argv))
    except PacelineError as error:
        return explain_failure("worker", error)
    return 0


if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m paceline_workers.main", description=__doc__).parse_args()
    sys.exit(main())
