"""Tensors from the safetensors files of a model folder, one file or sharded, in the type that is computed with.

All errors in the files are found here, before the engine serves, and name the file and the fix. The files are
memory-mapped only while loading; each tensor is copied, so that a file which changes later has no effect.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from paceline_core.errors import InvalidInput
from paceline_planner.hardware import Dtype
from paceline_workers.model_source import read_text

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
TORCH_TYPES = {
    Dtype.FP32: torch.float32,
    Dtype.BF16: torch.bfloat16,
    Dtype.FP8: torch.float8_e4m3fn,
    Dtype.INT8: torch.int8,
}
"""Types of weights and of KV pages; the last two are for pages on GPUs."""
CPU = torch.device("cpu")
_READABLE = (torch.float32, torch.bfloat16, torch.float16)


class Weights:
    """The tensors of one folder by name, on `device`, by default as `dtype`; a context manager that closes files."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32, device: torch.device = CPU) -> None:
        self.dtype = dtype
        self._device = device
        self._folder = folder
        self._files = ExitStack()
        self._index: Mapping[str, str] = {}
        self._tensors: dict[str, tuple[str, Any]] = {}
        self._taken: set[str] = set()

    def __enter__(self) -> "Weights":
        try:
            self._index = _read_index(self._folder)
            for name in sorted(set(self._index.values())) or [SINGLE]:
                self._open(name)
        except BaseException:
            self._files.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._files.close()

    def has(self, name: str) -> bool:
        return name in self._tensors

    def take(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """One tensor; raises InvalidInput if it is absent or does not have this shape and a readable type."""
        if name not in self._tensors:
            raise self._absent(name)
        self._taken.add(name)
        file, handle = self._tensors[name]
        path = str(self._folder / file)
        tensor: Tensor = handle.get_tensor(name)
        if tensor.shape != shape:
            raise InvalidInput(path, f"{name} has shape {list(tensor.shape)}, config.json makes it {list(shape)}")
        if tensor.dtype not in _READABLE:
            raise InvalidInput(path, f"{name} has type {tensor.dtype}; this version reads float32, bfloat16, float16")
        return tensor.to(self._device, dtype or self.dtype, copy=True)

    def check_others(self, harmless: Sequence[str]) -> None:
        """Raises InvalidInput if a tensor was not taken, unless its name ends like one of `harmless`: wrong weights."""
        for name in sorted(self._tensors.keys() - self._taken):
            if not name.endswith(tuple(harmless)):
                path = str(self._folder / self._tensors[name][0])
                fix = "config.json and the weights must be of the same model; copy it again"
                raise InvalidInput(path, f"holds the tensor {name}, for which config.json has no place; {fix}")

    def _absent(self, name: str) -> InvalidInput:
        fix = "copy the whole model again"
        if file := self._index.get(name):
            return InvalidInput(str(self._folder / INDEX), f"lists {name} in {file}, which does not hold it; {fix}")
        return InvalidInput(str(self._folder), f"no file holds the tensor {name}; {fix}")

    def _open(self, name: str) -> None:
        path = self._folder / name
        if path.exists() and not path.is_file():
            raise InvalidInput(str(path), "is no regular file; copy the whole model again")
        try:
            handle = self._files.enter_context(safe_open(path, framework="pt"))
        except FileNotFoundError:
            raise InvalidInput(str(path), f"is missing, but {INDEX} lists it; copy the whole model again") from None
        except (SafetensorError, OSError) as error:
            raise InvalidInput(str(path), f"is damaged or cut short ({error}); copy it again") from None
        for tensor in handle.keys():  # noqa: SIM118 - a handle is not iterable
            if self._index.get(tensor, name) == name:
                self._tensors[tensor] = (name, handle)


def _read_index(folder: Path) -> Mapping[str, str]:
    """The file of each tensor, if the folder has an index; empty for a single file."""
    if (folder / INDEX).is_file():
        return _index(folder / INDEX)
    if (folder / SINGLE).is_file():
        return {}
    fix = "only safetensors are read, so convert other formats with transformers' save_pretrained"
    raise InvalidInput(str(folder), f"holds neither {SINGLE} nor {INDEX}; {fix}")


def _index(path: Path) -> Mapping[str, str]:
    try:
        files: dict[str, str] = json.loads(read_text(path))["weight_map"]
        sound = all(Path(name).name == name for name in files.values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInput(str(path), f"is not an index of weights ({error!r}); copy it again") from None
    if not sound:
        raise InvalidInput(str(path), "names files outside the model's folder; copy the whole model again")
    return files
