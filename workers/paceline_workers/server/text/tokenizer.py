"""Converts text to ids and back, with the model folder's tokenizer.json.

A thread encodes a long text (`threads`), as a batch of one: only the library's batch calls release the interpreter
lock, which makes a thread useful at all. So one huge prompt does not delay the tokens of other streams, and the texts
of one request take turns with those of others. Known holes: returning the ids takes the lock again, some 30 ms for a
million; encoding takes some 200 bytes a character, so two texts of 8 MB take 3 GB.
"""

import json
import re
from array import array
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import models

from paceline_core.errors import InvalidInput
from paceline_workers.model_source import read_bytes, read_text
from paceline_workers.server.text.output import Decode
from paceline_workers.server.text.threads import TextThreads

BYTES = 256
KEEPING = frozenset({"ByteLevel", "Digits", "Split", "Sequence"})
INLINE_CHARACTERS = 4096
SPLIT_CHARACTERS = 1 << 18
"""A longer text is not split into segments: that blocks the loop some 4 microseconds per thousand characters."""
SLICE_CHARACTERS = 1 << 18
"""The most characters of several texts that a thread encodes at once."""
LEAST = 256
"""The fewest characters of a segment that is worth an entry."""
CHARACTERS = 1 << 22
PARTS = 1 << 14
"""A chat of 2,048 turns has 12,000 parts if a template writes three special tokens a turn. Each takes some 5 us."""


class SegmentCache:
    """A tokenizer's special tokens, and the ids of segments between them: system prompts, and a chat's earlier turns.

    A tokenizer first splits a text at its special tokens, and encodes the segments between them independently. So a
    chat's ids are those of its segments in order, and a long segment that occurred before need not be encoded again:
    0.06 ms for a thousand tokens, which take 1.1 ms or more to encode. Entries belong to a tenant, since the time saved
    would reveal one tenant's requests to another. The least recently used ones go when CHARACTERS are kept.

    Requires `exact`: byte-level BPE that drops nothing, with special tokens that do not absorb their neighbours.
    """

    def __init__(self, inner: tokenizers.Tokenizer, *, exact: bool, characters: int = CHARACTERS) -> None:
        added = inner.get_added_tokens_decoder()
        self._own = {token.content: [number] for number, token in added.items() if not token.normalized}
        usable = exact and self._own and not any(token.single_word for token in added.values())
        longest_first = sorted(self._own, key=len, reverse=True)
        self._pattern = re.compile(f"({'|'.join(map(re.escape, longest_first))})") if usable else None
        self._most = self._room = characters
        self._known: OrderedDict[tuple[str, str], array[int]] = OrderedDict()

    def split(self, text: str) -> list[str]:
        """The segments of a text and the special tokens between them; joined, they are the text.

        A text of more than PARTS parts stays whole, because each part is looked up on the event loop.
        """
        if self._pattern is None or len(parts := self._pattern.split(text, PARTS // 2)) > PARTS:
            return [text]
        return [part for part in parts if part]

    def known(self, salt: str, part: str) -> Sequence[int] | None:
        """The ids of a special token, or of a segment that occurred before."""
        if (ids := self._known.get((salt, part))) is not None:
            self._known.move_to_end((salt, part))
            return ids
        return self._own.get(part) if self._pattern else None

    def keep(self, salt: str, part: str, ids: Sequence[int]) -> None:
        """Remember a segment that was encoded."""
        if self._pattern is None or not LEAST <= len(part) <= self._most or (salt, part) in self._known:
            return
        self._known[salt, part] = array("i", ids)
        self._room -= len(part)
        while self._room < 0:
            (_, oldest), _ = self._known.popitem(last=False)
            self._room += len(oldest)


class Tokenizer:
    """The model's tokenizer; ids outside [0, size) are invalid. Equal `vocabulary`: ids have the same meaning."""

    def __init__(self, inner: tokenizers.Tokenizer, settings: Mapping[str, Any], vocabulary: str = "") -> None:
        self.vocabulary = vocabulary
        inner.no_truncation()
        inner.no_padding()
        self._inner = inner
        self._threads = TextThreads()
        byte_level = inner.decoder is not None and b'"ByteLevel"' in inner.decoder.__getstate__()
        self._bytes = _byte_level() if byte_level else {}
        word = next((token for piece, token in inner.get_vocab().items() if piece.startswith("▁")), None)
        self.drops_first_blank = not byte_level and word is not None and not inner.decode([word]).startswith(" ")
        """Whether decoding drops a blank at the start of a text, as SentencePiece does."""
        self.decode: Decode = partial(inner.decode, skip_special_tokens=True)
        """Text of a whole sequence, without special tokens."""
        self.decode_all: Decode = partial(inner.decode, skip_special_tokens=False)
        """Text of a whole sequence, with the names of special tokens."""
        self.close = self._threads.close
        self._longest = longest_token(inner, frozenset(self._bytes))
        self._segments = SegmentCache(inner, exact=self._longest is not None)
        self.special_tokens = _special_tokens(settings)
        added = inner.get_added_tokens_decoder()
        self.special_ids = frozenset(token for token, entry in added.items() if entry.special)
        self.size: int = inner.get_vocab_size(with_added_tokens=True)

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        """Read `tokenizer.json` and `tokenizer_config.json`, and in older folders `special_tokens_map.json`.

        Raises InvalidInput naming the file.
        """
        path = folder / "tokenizer.json"
        settings = read_json(folder / "tokenizer_config.json")
        if "added_tokens_decoder" not in settings:
            settings |= read_json(folder / "special_tokens_map.json")
        try:
            text = read_text(path)
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(str(path), f"cannot be read ({error}); the model folder must hold it") from None
        try:
            return cls(tokenizers.Tokenizer.from_str(text), settings, blake2b(text.encode(), digest_size=8).hexdigest())
        except Exception as error:  # noqa: BLE001 - the library raises no narrower type
            raise InvalidInput(str(path), f"is not a tokenizer: {error}") from None

    async def encode(self, text: str, *, special: bool) -> list[int]:
        """Ids of `text`; `special` adds the tokens that the model expects around a prompt. Raises RequestError."""
        [ids] = [ids async for ids in self.encode_each([text], special=special)]
        return ids

    async def encode_chat(self, text: str, salt: str) -> list[int]:
        """Ids of `text`, without added tokens; segments known for `salt` are not encoded again. Raises RequestError."""
        if len(text) > SPLIT_CHARACTERS:
            return await self.encode(text, special=False)
        parts = [(part, self._segments.known(salt, part)) for part in self._segments.split(text)]
        new = [part for part, ids in parts if ids is None]
        encoded = [ids async for ids in self.encode_each(new, special=False)]
        for part, ids in zip(new, encoded, strict=True):
            self._segments.keep(salt, part, ids)
        fresh = iter(encoded)
        return [token for _, known in parts for token in (next(fresh) if known is None else known)]

    async def encode_each(self, texts: Sequence[str], *, special: bool) -> AsyncGenerator[list[int], None]:
        """Ids of each text, in order, as they become available, so that a caller may stop before the end.

        Raises RequestError if too many long texts wait.
        """
        if sum(map(len, texts)) <= INLINE_CHARACTERS:
            for text in texts:
                yield self.encode_now(text, special=special)
            return
        for part in _slices(texts):
            work = partial(self._encode_unlocked, part, special=special)
            for ids in await self._threads.run(work, sum(map(len, part))):
                yield ids

    def encode_now(self, text: str, *, special: bool) -> list[int]:
        """Ids of `text`, computed in the calling thread."""
        return self._inner.encode(text, add_special_tokens=special).ids

    @cached_property
    def around(self) -> tuple[list[int], list[int]]:
        """The tokens that `special` adds before and after a text."""
        bare, whole = (self.encode_now("a", special=special) for special in (False, True))
        for start in range(len(whole) - len(bare) + 1):
            if whole[start : start + len(bare)] == bare:
                return whole[:start], whole[start + len(bare) :]
        return [], []

    def least(self, text: str) -> int:
        """A lower bound of the number of tokens of `text`, without encoding it; 0 if there is no bound."""
        return 0 if self._longest is None else -(-len(text.encode()) // self._longest)

    def _encode_unlocked(self, texts: Sequence[str], *, special: bool) -> list[list[int]]:
        encode = self._inner.encode_batch_fast  # one by one: a longer batch would take every core of the machine
        return [encode([text], add_special_tokens=special)[0].ids for text in texts]

    def grammar_token(self, text: str) -> int | None:
        """The id of a token that a grammar must name: a special one, or `<...>`, which llguidance reads as one."""
        token = self._inner.token_to_id(text)
        if token is None or token not in self._inner.get_added_tokens_decoder():
            return None
        bracketed = text.startswith("<") and text.endswith(">")
        return token if bracketed or token in self.special_ids else None

    def decoder(self, visible: Sequence[str]) -> Decode:
        """Like `decode`, but keeps the special tokens in `visible`, each between the texts around it."""
        left_out = self.special_ids - {self._inner.token_to_id(name) for name in visible}
        if left_out == self.special_ids:
            return self.decode
        return lambda ids: self.decode_all([token for token in ids if token not in left_out])

    async def spell(self, ids: Sequence[int]) -> str:
        """Text of ids with the names of special tokens, off the loop: a list may be long."""
        work = partial(self._inner.decode_batch, [list(ids)], skip_special_tokens=False)
        return (await self._threads.run(work, len(ids)))[0]

    async def names(self, ids: Sequence[int]) -> list[str]:
        """The vocabulary's name of each id, off the loop too."""
        return await self._threads.run(lambda: [self.token_text(token) for token in ids], len(ids))

    def token_text(self, token: int) -> str:
        """The vocabulary's name of a token: bytes by their stand-ins, special tokens by their names."""
        return self._inner.id_to_token(token) or ""

    def token_bytes(self, token: int) -> bytes:
        """The bytes of one token, as `logprobs` shows them; the name of a special token."""
        piece = self.token_text(token)
        if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
            return bytes.fromhex(piece[3:5])
        if self._bytes and all(character in self._bytes for character in piece):
            return bytes(self._bytes[character] for character in piece)
        return piece.encode() if self._bytes else piece.replace("▁", " ").encode()


def read_json(path: Path) -> dict[str, Any]:
    """An optional JSON object; {} if there is no such file. Raises InvalidInput."""
    try:
        data = json.loads(read_bytes(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InvalidInput(str(path), f"cannot be read: {error}") from None
    if not isinstance(data, dict):
        raise InvalidInput(str(path), "must hold a JSON object")
    return data


def _slices(texts: Sequence[str]) -> Iterator[list[str]]:
    """The texts in order, in groups of at most SLICE_CHARACTERS; a longer text is a group by itself."""
    part: list[str] = []
    size = 0
    for text in texts:
        if part and size + len(text) > SLICE_CHARACTERS:
            yield part
            part, size = [], 0
        part.append(text)
        size += len(text)
    yield part


def _special_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    """`bos_token` and the like, with the model's own: each is a string or an object with `content`."""
    extra = settings.get("extra_special_tokens")
    named = {name: value for name, value in settings.items() if name.endswith("_token")}
    named |= extra if isinstance(extra, dict) else {}
    texts = {name: value.get("content") if isinstance(value, dict) else value for name, value in named.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def _byte_level() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 bytes: character -> byte."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + index): byte for index, byte in enumerate(others)}


def longest_token(inner: tokenizers.Tokenizer, alphabet: frozenset[str]) -> int | None:
    """Bytes of the longest token, which gives a lower bound of a prompt's tokens. `alphabet`: stand-ins for the bytes.

    Only a tokenizer that drops nothing has such a bound: byte-level BPE that has all 256 bytes, with no normalizer,
    with splits that keep their separators, with added tokens that do not absorb blanks. For others it is None, since a
    run of text of any length may become one token or none.
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
    steps = [json.loads(inner.pre_tokenizer.__getstate__())]
    for step in steps:  # nested steps are appended
        steps += step.get("pretokenizers", ())
    kinds = {step["type"] for step in steps}
    return "ByteLevel" in kinds <= KEEPING and all(step.get("behavior") != "Removed" for step in steps)
