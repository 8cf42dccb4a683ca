"""Memory that this process may still take: what the machine has free, and what the limits of its cgroups leave.

Page cache counts as free, since the kernel gives it up. Known hole: cgroups of version 1 are not asked.
"""

import re
from pathlib import Path

_AVAILABLE = re.compile(r"^MemAvailable:\s+(\d+) kB$", re.MULTILINE)
_GROUP = re.compile(r"^0::/(.*)$", re.MULTILINE)
_CACHE = re.compile(r"^inactive_file (\d+)$", re.MULTILINE)


def free_memory(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """In bytes; None where nobody says."""
    said = [_number(_AVAILABLE, proc / "meminfo", 1024)]
    if group := _GROUP.search(_text(proc / "self/cgroup")):
        own = cgroups / group[1]
        said += [_left(folder) for folder in (own, *own.parents) if folder.is_relative_to(cgroups)]
    return min((size for size in said if size is not None), default=None)


def _left(group: Path) -> int | None:
    limit, used = _text(group / "memory.max").strip(), _text(group / "memory.current").strip()
    if not (limit.isdecimal() and used.isdecimal()):
        return None
    return max(int(limit) - int(used) + (_number(_CACHE, group / "memory.stat", 1) or 0), 0)


def _number(pattern: re.Pattern[str], path: Path, unit: int) -> int | None:
    found = pattern.search(_text(path))
    return int(found[1]) * unit if found else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
