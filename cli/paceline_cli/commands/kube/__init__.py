"""The commands of `kubectl paceline`."""

import enum
import json
from typing import Annotated, Any

import typer
import yaml


class Format(enum.StrEnum):
    JSON = "json"
    YAML = "yaml"


Output = Annotated[Format | None, typer.Option("--output", "-o", help="Machine-readable format. Default: text.")]


def written(document: Any, form: Format) -> str:
    if form is Format.JSON:
        return json.dumps(document, indent=1)
    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True)).rstrip()
