"""JSON files of a model folder."""

import json
from pathlib import Path
from typing import Any

from paceline_core.errors import InvalidInput
from paceline_workers.files import read_text


def read_object(path: Path) -> dict[str, Any]:
    """The object in a file; raises InvalidInput naming the file."""
    try:
        data = json.loads(read_text(path))
    except OSError as error:
        raise InvalidInput(str(path), f"cannot be read: {error.strerror}; a model folder needs it") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(str(path), f"is not JSON ({error}); copy it again") from None
    if not isinstance(data, dict):
        raise InvalidInput(str(path), "is not a JSON object; copy it again")
    return data
