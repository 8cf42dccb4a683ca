"""`python -m benchmarks.engine.pinned CORE MODULE ARGS`: a module on one core, with all the threads it starts.

`worker CORE` for the module: a worker's API process, whose engine goes to that other core.
"""

import os
import runpy
import sys

ENGINE = "paceline_workers.engine"


def main(core: int, module: str, *arguments: str) -> None:
    """Never returns where the module exits."""
    os.sched_setaffinity(0, {core})
    if module == "worker":
        from paceline_workers.main import main as worker  # noqa: PLC0415 - an engine must not load the API

        sys.exit(worker([sys.executable, "-m", "benchmarks.engine.pinned", arguments[0], ENGINE]))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], *sys.argv[3:])
