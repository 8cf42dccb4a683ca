"""Small tokenizers of the kinds that models have, made as their publishers make them.

`llama2`: converted from SentencePiece, `▁` before every text and after every special token; `mistral`: `▁` before the
first text alone; `gemma`: no `▁` is added and no blank dropped; `qwen`: bytes.
"""

import json
from functools import cache
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = (
    "Say hello to the whole world. It's the cat (a cat) on the mat, and the promise of a promise is kept, isn't it?"
)
SPECIAL = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
FAMILIES = ("llama2", "mistral", "gemma", "qwen")
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


@cache
def made(family: str) -> Tokenizer:
    """One of FAMILIES."""
    return _bytes() if family == "qwen" else _pieces(family)


def write(folder: Path, family: str, template: str = "") -> Path:
    """A folder of it, as AutoTokenizer reads it too."""
    folder.mkdir(exist_ok=True)
    made(family).save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(
        json.dumps(settings | ({"chat_template": template} if template else {}))
    )
    return folder


def _bytes() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([CORPUS] * 3, trainer)
    return tokenizer


def _pieces(family: str) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=SPECIAL + _BYTES, show_progress=False)
    tokenizer.train_from_iterator([CORPUS] * 3, trainer)
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = []
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIAL])
    replaced, prepended = normalizers.Replace(" ", "▁"), normalizers.Prepend("▁")
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(steps if family == "gemma" else [*steps, decoders.Strip(" ", 1, 0)])
    if family == "mistral":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    else:
        tokenizer.pre_tokenizer = None
        tokenizer.normalizer = normalizers.Sequence([prepended, replaced] if family == "llama2" else [replaced])
    first = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", first)]
    )
    return tokenizer
