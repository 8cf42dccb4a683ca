"""Change files of a model folder, and see it refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engine.driver import load

from paceline_core.errors import InvalidInput


def refusal(folder: Path, **engine: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        load(folder, **engine)
    return str(caught.value)


def refused_by_name(folder: Path, read: Callable[[Path], object]) -> bool:
    """Whether it is refused, which must then name the file or the folder."""
    try:
        read(folder)
    except InvalidInput as error:
        return str(error).startswith(str(folder)) or pytest.fail(str(error))
    return False


def edit(path: Path, **fields: object) -> None:
    """Set fields of a JSON file; None removes one."""
    data = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({key: value for key, value in data.items() if value is not None}))
