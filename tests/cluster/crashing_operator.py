"""An operator that dies right after its k-th write was answered: `PACELINE_TEST_CRASH_AFTER=k`, for the crash matrix.

Dies as by SIGKILL: no lease is given back, nothing is flushed. Lease writes do not count. Not part of any package.
"""

import os
import sys
from typing import Any

from paceline_core.kube.api.server import ApiServer
from paceline_operator.main import main

WRITES = ("apply", "delete", "create", "merge", "replace")


class Crashing:
    """An ApiServer whose k-th write is the process's last act. `apply_new` is an `apply` of the real one."""

    def __init__(self, api: ApiServer, after: int) -> None:
        self._api = api
        self._left = after

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._api, name)
        return self._counted(real) if name in (*WRITES, "apply_new") else real

    def _counted(self, real: Any) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return await real(*args, **kwargs)
            finally:
                self._left -= 1
                if self._left == 0:
                    os._exit(9)

        return call


if __name__ == "__main__":
    sys.exit(main(lambda api: Crashing(api, int(os.environ["PACELINE_TEST_CRASH_AFTER"]))))  # type: ignore[arg-type,return-value]
