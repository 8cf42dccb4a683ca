"""Why a worker's container ended, in the words of whoever knows: the kernel, the worker's last line, its exit code."""

from collections.abc import Mapping
from typing import Any

from paceline_core.launch.words import to_manifest_field


def termination_reason(terminated: Mapping[str, Any]) -> str:
    """One clause from a container's `terminated` state."""
    if terminated.get("reason") == "OOMKilled":
        return "the worker used more memory than its limit and was killed (OOMKilled)"
    lines = [line for line in (terminated.get("message") or "").splitlines() if line.strip()]
    if lines:
        return to_manifest_field(lines[-1].strip())
    return f"the worker ended with exit code {terminated.get('exitCode', 'unknown')}; see its log"
