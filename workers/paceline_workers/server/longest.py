"""How many bytes of text one token can stand for at most: the bound below which no prompt can be encoded.

Only a tokenizer that drops nothing has such a bound: byte-level BPE that knows all 256 bytes, with no normalizer, with
splits that keep what they split at, with added tokens that swallow no blanks. Of the others nothing is claimed.
"""

import json
from collections.abc import Iterator
from typing import Any

import tokenizers
from tokenizers import models

BYTES = 256
KEEPING = frozenset({"ByteLevel", "Digits", "Split", "Sequence"})


def longest_token(inner: tokenizers.Tokenizer, alphabet: frozenset[str]) -> int | None:
    """Bytes of the longest token; None where a run of text of any length may become one token or none.

    `alphabet` holds the stand-ins for the bytes, one character each.
    """
    vocabulary = inner.get_vocab(with_added_tokens=False)
    added = inner.get_added_tokens_decoder().values()
    if not (len(alphabet) == BYTES and alphabet <= vocabulary.keys() and _keeps_all(inner)):
        return None
    if any(token.lstrip or token.rstrip for token in added):
        return None
    return max(*map(len, vocabulary), *(len(token.content.encode()) for token in added))


def _keeps_all(inner: tokenizers.Tokenizer) -> bool:
    if inner.normalizer is not None or inner.pre_tokenizer is None or not isinstance(inner.model, models.BPE):
        return False
    steps = list(_steps(json.loads(inner.pre_tokenizer.__getstate__())))
    kinds = {step["type"] for step in steps}
    return "ByteLevel" in kinds <= KEEPING and all(step.get("behavior") != "Removed" for step in steps)


def _steps(state: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield state
    for inner in state.get("pretokenizers", ()):
        yield from _steps(inner)
