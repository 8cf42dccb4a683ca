"""Request logs of four public formats, and paceline's own reduction of them, as `TraceRequest`s ordered by arrival.

    format                   time                          lengths                           content
    t_s (our reduction)      seconds                       prompt_tokens, output_tokens      hash_ids, client
    Azure 2023, 2024 (CSV)   TIMESTAMP, date and time      ContextTokens, GeneratedTokens    none
    BurstGPT (CSV)           Timestamp, seconds            Request tokens, Response tokens   none
    Mooncake (JSON lines)    timestamp, milliseconds       input_length, output_length       hash_ids

The columns decide the format, the suffix `.gz` the compression. Times count from the first request. Mooncake's
`hash_ids` name blocks of 512 prompt tokens: equal ids mean equal tokens, so prefixes are found as in the original.
BurstGPT logs failed requests with no output tokens; these are skipped, as its authors advise.
Known hole: arrivals that a log rounds to one instant stay together; `spread` distributes them.
"""

import csv
import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby, islice, pairwise
from math import ceil, isfinite
from pathlib import Path
from typing import Any, TextIO

from paceline_core.errors import InvalidInput

BLOCK = 512
"""Tokens of the prompt that one of `TraceRequest.blocks` stands for."""
UNIQUE = 1 << 30
"""The first token id of prompts whose content is unknown, above all ids of blocks."""
_ENCODING = "utf-8-sig"
"""Spreadsheets begin a file with a byte order mark."""


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request: arrival in seconds, lengths in tokens. `blocks` name the prompt's content; empty: it is unique."""

    at: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    tenant: str = ""

    def tokens(self, number: int) -> list[int]:
        """The prompt's token ids: each token of a block is its name. `number` sets unique prompts apart."""
        if not self.blocks:
            return [UNIQUE + number] * self.prompt_tokens
        found: list[int] = []
        for block in self.blocks:
            found += [block] * BLOCK
        return found[: self.prompt_tokens]


def _number(value: Any) -> float:
    """Raises ValueError for what is no number, or infinite."""
    number = float(value)
    if not isfinite(number):
        raise ValueError
    return number


def _date_seconds(value: Any) -> float:
    """Seconds of a date and time with up to seven digits after the point, as Azure writes them."""
    whole, _, digits = str(value).removesuffix("+00:00").partition(".")
    return datetime.fromisoformat(whole + "+00:00").timestamp() + (float(f"0.{digits}") if digits else 0.0)


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """A format's columns, and how its time is read as seconds. `unit` says how the time is written."""

    time: str
    prompt: str
    output: str
    seconds: Callable[[Any], float] = _number
    unit: str = "a number of seconds"
    skips_empty_output: bool = False


FORMATS = (
    TraceFormat("t_s", "prompt_tokens", "output_tokens"),
    TraceFormat("TIMESTAMP", "ContextTokens", "GeneratedTokens", _date_seconds, "a date and time"),
    TraceFormat("Timestamp", "Request tokens", "Response tokens", skips_empty_output=True),
    TraceFormat("timestamp", "input_length", "output_length", lambda value: _number(value) / 1000, "milliseconds"),
)


def read_trace(path: Path, count: int | None = None) -> list[TraceRequest]:
    """The first `count` requests of a log, or all.

    Raises InvalidInput naming the file, and the line if one is damaged.
    """
    if path.exists() and not path.is_file():
        raise InvalidInput(str(path), "is not a file, and a trace is read twice; save it in one")
    try:
        with gzip.open(path, "rt", encoding=_ENCODING) if _packed(path) else path.open(encoding=_ENCODING) as file:
            found = list(islice(_requests(path, file), count))
    except EOFError:
        raise InvalidInput(str(path), "ends in the middle of its packed data; copy the whole file") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(str(path), f"cannot be read as a trace ({reason}); pass a CSV or JSON lines file") from None
    if not found:
        raise InvalidInput(str(path), "holds no requests; a CSV file has a header and a line for each request")
    found.sort(key=lambda request: request.at)
    first = found[0].at
    return [replace(request, at=request.at - first) for request in found]


def _packed(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def spread(requests: Iterable[TraceRequest]) -> list[TraceRequest]:
    """Distribute requests of one instant evenly over the time until the next one."""
    groups = [(at, list(group)) for at, group in groupby(requests, key=lambda request: request.at)]
    ends = [after for _, (after, _) in pairwise(groups)] + [at for at, _ in groups[-1:]]
    return [
        replace(request, at=at + (end - at) * place / len(group))
        for (at, group), end in zip(groups, ends, strict=True)
        for place, request in enumerate(group)
    ]


def _requests(path: Path, file: TextIO) -> Iterator[TraceRequest]:
    rows = _json_rows(path, file) if ".json" in "".join(path.suffixes) else _csv_rows(file)
    trace_format: TraceFormat | None = None
    for line, row in rows:
        trace_format = trace_format or _format_of(path, row)
        try:
            request = _request(trace_format, row)
        except ValueError as error:
            raise InvalidInput(f"{path}:{line}", f"{error}; mend or remove the line") from None
        if request is not None:
            yield request


def _csv_rows(file: TextIO) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.DictReader(file)
    for row in reader:
        yield reader.line_num, row


def _json_rows(path: Path, file: TextIO) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for line, text in enumerate(file, 1):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
        except ValueError as error:
            raise InvalidInput(f"{path}:{line}", f"is not JSON ({error}); mend or remove the line") from None
        if not isinstance(row, dict):
            raise InvalidInput(f"{path}:{line}", "is not a JSON object; mend or remove the line")
        yield line, row


def _format_of(path: Path, row: Mapping[str, Any]) -> TraceFormat:
    """The format whose columns the first row has."""
    for candidate in FORMATS:
        if row.keys() >= {candidate.time, candidate.prompt, candidate.output}:
            return candidate
    known = "; or ".join(f"{f.time}, {f.prompt} and {f.output}" for f in FORMATS)
    found = ", ".join(map(str, row))
    raise InvalidInput(str(path), f"has the columns {found}; name them in the first line, between commas: {known}")


def _request(trace_format: TraceFormat, row: Mapping[str, Any]) -> TraceRequest | None:
    """Raises ValueError naming the column."""
    prompt, output = (_tokens(row, name) for name in (trace_format.prompt, trace_format.output))
    if output == 0 and trace_format.skips_empty_output:
        return None
    if prompt < 1:
        raise ValueError(f"{trace_format.prompt} is 0, and a prompt has at least one token")
    try:
        at = trace_format.seconds(row.get(trace_format.time))
    except (TypeError, ValueError):
        raise ValueError(f"{trace_format.time} is {_shown(row, trace_format.time)}, not {trace_format.unit}") from None
    return TraceRequest(at, prompt, max(output, 1), _blocks(row, prompt), str(row.get("client") or ""))


def _tokens(row: Mapping[str, Any], name: str) -> int:
    try:
        count = int(row.get(name, ""))
    except (TypeError, ValueError):
        count = -1
    if count < 0:
        raise ValueError(f"{name} is {_shown(row, name)}, not a whole number of tokens")
    return count


def _blocks(row: Mapping[str, Any], prompt: int) -> tuple[int, ...]:
    try:
        blocks = tuple(map(int, row.get("hash_ids") or ()))
    except (TypeError, ValueError):
        raise ValueError(f"hash_ids is {_shown(row, 'hash_ids')}, not a list of whole numbers") from None
    if blocks and not 0 <= min(blocks) <= max(blocks) < UNIQUE:
        raise ValueError(f"hash_ids are from {min(blocks)} to {max(blocks)}, not from 0 to {UNIQUE - 1}")
    needed = ceil(prompt / BLOCK)
    if blocks and len(blocks) != needed:
        raise ValueError(f"hash_ids are {len(blocks)}, but {prompt} prompt tokens are {needed} blocks of {BLOCK}")
    return blocks


def _shown(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    return "missing" if value is None or value == "" else repr(value)
