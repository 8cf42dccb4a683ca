"""Configuration files: one YAML file for each process, unknown fields refused, secrets by path (DESIGN 12).

`PACELINE_CONFIG` names the file, `PACELINE_LOG_LEVEL` the level. The only other variables read are OpenTelemetry's.
"""

import os
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from paceline_core.errors import InvalidInput
from paceline_core.objects.field_errors import did_you_mean

ORIGIN_PATTERN = r"^(\*|[a-z][a-z0-9+.-]*://[^/\sA-Z@?#,]+)$"
"""A page's origin as browsers send it, in lower case, also an extension's; or `*` for every origin."""
FILE_VARIABLE = "PACELINE_CONFIG"
LEVEL_VARIABLE = "PACELINE_LOG_LEVEL"
COLLECTOR_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Listen(Config):
    """Where a server listens; port 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65535)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host: a loopback address, or `localhost`."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


C = TypeVar("C", bound=Config)


def load(kind: type[C], path: Path) -> C:
    """Read and check one file; raises InvalidInput naming the file, the field and what is wrong."""
    try:
        data: Any = yaml.safe_load(path.read_text())
    except OSError as error:
        raise InvalidInput(str(path), f"cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        fault = " ".join(str(error).split())  # in one line: a supervisor shows a process's last line
        if isinstance(error, yaml.MarkedYAMLError) and (mark := error.problem_mark) is not None:
            fault = f"{error.problem} (line {mark.line + 1}, column {mark.column + 1})"
        raise InvalidInput(str(path), f"is not YAML: {fault}") from None
    return parse(kind, data if data is not None else {}, str(path))


def parse(kind: type[C], data: Any, origin: str) -> C:
    """Check plain data; `origin` begins every message."""
    if not isinstance(data, dict):
        raise InvalidInput(origin, "must be a mapping, each setting and its value")
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InvalidInput(f"{origin}: {field}" if field else origin, _message(kind, first)) from None


def _message(kind: type[Config], error: ErrorDetails) -> str:
    """pydantic's message, or the names of the possible settings where they help more."""
    *path, last = error["loc"] or ("",)
    match error["type"]:
        case "extra_forbidden":
            known = _settings(kind, path)
            listed = f"; the settings here are {', '.join(known)}" if known else ""
            return f"unknown setting{did_you_mean(str(last), known) or listed}"
        case "model_type":
            return f"must be a mapping of settings: {', '.join(_settings(kind, error['loc']))}"
    return error["msg"]


def _settings(kind: type[Config], path: Iterable[str | int]) -> list[str]:
    """The names that are allowed at a path, where its fields are fixed."""
    for name in path:
        field = kind.model_fields.get(str(name))
        choices = () if field is None else (field.annotation, *get_args(field.annotation))
        parts = [choice for choice in choices if isinstance(choice, type) and issubclass(choice, Config)]
        if not parts:
            return []
        kind = parts[0]
    return list(kind.model_fields)


def from_environment(kind: type[C], environ: Mapping[str, str] = os.environ) -> C:
    path = environ.get(FILE_VARIABLE)
    if not path:
        raise InvalidInput(FILE_VARIABLE, "is not set; it must name this process's configuration file")
    return load(kind, Path(path))


def tracing_enabled(environ: Mapping[str, str]) -> bool:
    """Whether OpenTelemetry's variables leave tracing enabled."""
    return environ.get("OTEL_SDK_DISABLED", "").lower() != "true" and environ.get("OTEL_TRACES_EXPORTER") != "none"


def collector_configured(environ: Mapping[str, str]) -> bool:
    return any(environ.get(name) for name in COLLECTOR_VARIABLES)
