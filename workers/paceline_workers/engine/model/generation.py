"""What generation_config.json says: ids that end a sequence, and the sampling that the model's makers advise.

The defaults apply where a request names no value, as in vLLM; `do_sample` is not read, since temperature 0 says it.
A folder may lack the file.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline_core.errors import InvalidInput
from paceline_workers.engine.model.files import read_object

NAME = "generation_config.json"
_RANGES: Mapping[str, tuple[Callable[[float], bool], str]] = {
    "temperature": (lambda value: value >= 0, "a number of at least 0"),
    "top_p": (lambda value: 0 < value <= 1, "a number above 0 and at most 1"),
    "top_k": (lambda value: value >= -1 and value == int(value), "a whole number of at least -1"),
    "min_p": (lambda value: 0 <= value <= 1, "a number from 0 to 1"),
    "repetition_penalty": (lambda value: value > 0, "a number above 0"),
}


@dataclass(frozen=True, slots=True)
class Generation:
    """`defaults`: by the field names of requests, only those that the file gives."""

    eos_ids: tuple[int, ...] = ()
    defaults: Mapping[str, float] = field(default_factory=dict)


def read_generation(folder: Path, config: Mapping[str, Any]) -> Generation:
    """From a model folder, EOS ids else from its config.json; raises InvalidInput naming file and field."""
    path = folder / NAME
    data = read_object(path) if path.is_file() else {}
    source = path if "eos_token_id" in data else folder / "config.json"
    eos = eos_ids(source, data.get("eos_token_id", config.get("eos_token_id")))
    given = {name: data[name] for name in _RANGES if data.get(name) is not None}
    return Generation(eos, {name: _checked(path, name, value) for name, value in given.items()})


def eos_ids(path: Path, ids: object) -> tuple[int, ...]:
    """One id, a list of them, or none."""
    listed = ids if isinstance(ids, list) else [] if ids is None else [ids]
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in listed):
        raise InvalidInput(f"{path}: eos_token_id", f"{ids!r} is neither a token id nor a list of them")
    return tuple(listed)


def _checked(path: Path, name: str, value: object) -> float:
    holds, words = _RANGES[name]
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and holds(value):
        return float(value)
    raise InvalidInput(f"{path}: {name}", f"{value!r} is not {words}")
