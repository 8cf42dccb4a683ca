"""What every worker test shares: the demo tokenizer, a small byte-fallback tokenizer, and model folders."""

from pathlib import Path

import pytest
import tokenizers
from tokenizers import decoders, models

from paceline_workers import demo
from paceline_workers.server.text.tokenizer import Tokenizer

TEXT = "A promise on TTFT: naïve, 漢字 and 👩‍🚀 too."


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """The demo model's: byte-level BPE, so its tokens cut characters anywhere."""
    return Tokenizer.load(demo.FOLDER)


@pytest.fixture(scope="session")
def reply(tokenizer: Tokenizer) -> list[int]:
    """Token ids of TEXT."""
    return tokenizer.encode_now(TEXT, special=False)


@pytest.fixture(scope="session")
def byte_fallback() -> Tokenizer:
    """A tokenizer of SentencePiece's kind: pieces with `▁`, and `<0xXX>` for every byte of the rest."""
    pieces = ["<unk>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁the", "▁a", "cat", "s", "é", "."]
    inner = tokenizers.Tokenizer(
        models.BPE({piece: index for index, piece in enumerate(pieces)}, [], unk_token="<unk>", byte_fallback=True)
    )
    inner.add_special_tokens(["<unk>", "</s>"])
    inner.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return Tokenizer(inner, {})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder, for model files or a trust file."""
    return tmp_path
