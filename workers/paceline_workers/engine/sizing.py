"""Computes the engine's limits from configuration, model and free memory. Every refusal names the field and the fix.

All but `free_memory` is pure. Free memory is what the machine has free, bounded by the limits of the process's cgroups.
Page cache counts as free, because the kernel gives it up. Known hole: cgroups of version 1 are not read.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from paceline_core.errors import InvalidInput
from paceline_core.registry.enums import RequestClass
from paceline_planner.hardware import Dtype
from paceline_planner.shapes import ModelShape
from paceline_workers.config import EngineConfig
from paceline_workers.engine.kv_cache.attention_window import ALL, AttentionWindow
from paceline_workers.engine.scheduling import SchedulerLimits

Number = TypeVar("Number", int, float)


def shaped(engine: EngineConfig, shape: ModelShape, usual: Dtype) -> ModelShape:
    """The shape in the types that are computed here: of weights, and of keys and values, which may differ."""
    own = usual if engine.dtype == "auto" else Dtype(engine.dtype)
    return replace(shape, weight_dtype=own, kv_dtype=own if engine.kv_dtype == "auto" else Dtype(engine.kv_dtype))


def check_cpu(engine: EngineConfig) -> None:
    """Refuse settings that CPUs do not support."""
    if engine.kv_dtype in ("fp8", "int8"):
        raise InvalidInput(
            "engine.kv_dtype", f"{engine.kv_dtype} is for GPUs; write bf16 or fp32 here, or leave it out"
        )


def pages(engine: EngineConfig, page_bytes: int, room: int) -> int:
    """Pages of the pool: as configured (count before bytes), else as many as fit into `room` bytes."""
    if engine.kv_pages is not None:
        return engine.kv_pages
    size = engine.kv_bytes if engine.kv_bytes is not None else room
    if size < page_bytes:
        raise InvalidInput("engine.kv_bytes", f"{size} bytes do not hold one page of {page_bytes}; give more")
    return size // page_bytes


def host_pages(engine: EngineConfig, page_bytes: int) -> int:
    """Pages in host memory in addition to the pool; 0 if none are configured."""
    if not engine.host_bytes:
        return 0
    if not engine.prefix_cache:
        raise InvalidInput(
            "engine.host_bytes", "host pages are found by the prefix cache; turn it on, or leave this out"
        )
    if engine.host_bytes < page_bytes:
        raise InvalidInput(
            "engine.host_bytes", f"{engine.host_bytes} bytes do not hold one page of {page_bytes}; give more, or 0"
        )
    return engine.host_bytes // page_bytes


def fit(engine: EngineConfig, beside: int, free: int | None) -> None:
    """Refuse host pages that exceed `free` bytes of memory after weights and pool have used `beside` of them."""
    if free is not None and engine.host_bytes and engine.host_bytes > free - beside:
        left = max(free - beside, 0)
        raise InvalidInput(
            "engine.host_bytes",
            f"{_mib(engine.host_bytes)} do not fit: of {_mib(free)} of free memory the model and its pages leave "
            f"{_mib(left)}; ask for less",
        )


def disk_pages(engine: EngineConfig, page_bytes: int, file_bytes: int) -> int:
    """Pages on disk in addition to host memory, each in a file of `file_bytes`; 0 if none are configured."""
    if engine.disk_path is None and not engine.disk_bytes:
        return 0
    if engine.disk_path is None or engine.disk_bytes < file_bytes:
        raise InvalidInput(
            "engine.disk_bytes",
            f"{engine.disk_bytes} bytes in {engine.disk_path}: give a folder and at least one page of {file_bytes}",
        )
    if not host_pages(engine, page_bytes):
        raise InvalidInput("engine.disk_path", "pages reach the disk through host memory; set host_bytes beside it")
    return engine.disk_bytes // file_bytes


def attention_windows(engine: EngineConfig, own: Sequence[AttentionWindow]) -> tuple[AttentionWindow, ...]:
    """The attention window of each layer: its `own`, narrowed to the configured window."""
    window, sinks = engine.attention_window, engine.sink_tokens
    if window is None:
        if sinks:
            raise InvalidInput("engine.sink_tokens", "needs an attention_window beside it; set that, or leave this out")
        return tuple(own)
    if window < engine.page_tokens:
        raise InvalidInput(
            "engine.attention_window", f"{window} tokens are less than a page of {engine.page_tokens}; ask for more"
        )
    if sinks >= window:
        raise InvalidInput("engine.sink_tokens", f"{sinks} must be below the attention_window of {window}; lower it")
    return tuple(attention_window.narrowed(window, sinks) for attention_window in own)


def limits(
    engine: EngineConfig, *, context: int, vocab_size: int, pages: int, attention_window: AttentionWindow = ALL
) -> SchedulerLimits:
    """The limits for a pool of `pages` and a model with this `context`: the longest request always fits alone.

    If `pages` hold a whole attention window, every request does.
    """
    least = attention_window.min_pages(engine.page_tokens)
    bounded = least is not None and least <= pages
    return SchedulerLimits(
        max_model_len=_max_model_len(engine, context, context if bounded else pages * engine.page_tokens),
        vocab_size=vocab_size,
        page_tokens=engine.page_tokens,
        max_seqs=engine.max_seqs,
        step_tokens=engine.step_tokens,
        windows=_by_class("batch_window_s", engine.batch_window_s),
        tpot=_by_class("tpot_s", engine.tpot_s),
        weights=_by_class("class_weights", engine.class_weights),
        class_waiting=_by_class("class_waiting", engine.class_waiting),
        batching=engine.batching,
        reserved=_reserved(engine),
    )


def _mib(size: int) -> str:
    return f"{size >> 20} MiB"


def _reserved(engine: EngineConfig) -> dict[RequestClass, float]:
    shares = _by_class("class_reserved", engine.class_reserved)
    if sum(shares.values()) >= 1:
        raise InvalidInput("engine.class_reserved", f"{sum(shares.values()):g} in all leaves nothing; stay below 1")
    return shares


def _max_model_len(engine: EngineConfig, context: int, capacity: int) -> int:
    wanted = engine.max_model_len
    if wanted is None:
        return min(context, capacity)
    if wanted > context:
        raise InvalidInput("engine.max_model_len", f"{wanted} is over the model's context of {context}; lower it")
    if wanted > capacity:
        raise InvalidInput(
            "engine.max_model_len",
            f"{wanted} tokens do not fit into the KV memory of {capacity} tokens; lower it or give more memory",
        )
    return wanted


def _by_class(field: str, values: Mapping[str, Number]) -> dict[RequestClass, Number]:
    for name in values:
        if name not in list(RequestClass):
            raise InvalidInput(f"engine.{field}", f"{name!r} is no class; use {', '.join(RequestClass)}")
    return {RequestClass(name): value for name, value in values.items()}


_AVAILABLE = re.compile(r"^MemAvailable:\s+(\d+) kB$", re.MULTILINE)
_GROUP = re.compile(r"^0::/(.*)$", re.MULTILINE)
_CACHE = re.compile(r"^inactive_file (\d+)$", re.MULTILINE)


def free_memory(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Free memory in bytes; None if the system does not report it."""
    sizes = [_number(_AVAILABLE, proc / "meminfo", 1024)]
    if group := _GROUP.search(_text(proc / "self/cgroup")):
        own = cgroups / group[1]
        sizes += [_left(folder) for folder in (own, *own.parents) if folder.is_relative_to(cgroups)]
    return min((size for size in sizes if size is not None), default=None)


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
