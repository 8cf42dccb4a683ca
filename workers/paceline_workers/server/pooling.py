"""How a model folder wants embeddings pooled, as sentence-transformers writes it down.

The vector is the last token's hidden state after the final norm, of length 1: what a decoder made for embeddings has.
A folder that asks for anything else (mean, a dense layer) would get vectors of no use, so it is refused by name. Mean
pooling needs the states of all tokens, which a prefix hit does not compute.
"""

import json
from pathlib import Path
from typing import Any

from paceline_core.errors import InvalidInput
from paceline_workers.files import read_bytes
from paceline_workers.server.tokenizer import read_json

KNOWN = frozenset({"Transformer", "Pooling", "Normalize"})
LAST = "pooling_mode_lasttoken"
_FIX = "this worker takes the last token's hidden state alone"


def refusal(folder: Path) -> str:
    """Why this model's embeddings cannot be had, in words for a client; "" if they can. Raises InvalidInput."""
    others = [name for name in _modules(folder / "modules.json") if name not in KNOWN]
    if others:
        return f"This model's modules.json adds the module {others[0]} to its embeddings; {_FIX}."
    settings = read_json(folder / "1_Pooling" / "config.json")
    modes = [name for name, value in settings.items() if name.startswith("pooling_mode_") and value is True]
    if modes in ([], [LAST]):
        return ""
    return f"This model's 1_Pooling/config.json asks for {' and '.join(modes)}; {_FIX}."


def _modules(path: Path) -> list[str]:
    """Kinds of the modules in their order: the last part of each `type`."""
    try:
        modules: Any = json.loads(read_bytes(path))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise InvalidInput(str(path), f"cannot be read: {error}") from None
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise InvalidInput(str(path), "must hold a list of JSON objects")
    return [str(module.get("type", "")).rpartition(".")[2] for module in modules]
