"""An operator that dies right after its k-th write was answered, for the crash matrix. Not part of any package.

Dies as by SIGKILL: no lease is given back, nothing is flushed. Lease writes do not count.
"""

import os
import sys
from typing import Any

from paceline_core.kube.client.client import KubeClient
from paceline_operator.main import main

DIED = 9
WRITES = ("apply", "delete", "create", "merge", "replace")


class Crashing:
    """An ApiServer whose k-th write is the process's last act. `apply_new` is an `apply` of the real one."""

    def __init__(self, api: KubeClient, after: int) -> None:
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
                    os._exit(DIED)

        return call


def run(after: int) -> None:
    """Be that operator; one that lives when `after` is 0."""
    sys.exit(main((lambda api: Crashing(api, after)) if after else (lambda api: api)))  # type: ignore[arg-type,return-value]
