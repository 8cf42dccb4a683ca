"""The demo model's tokenizer: byte-level BPE learned from the corpus, with the four marks of the chat template.

All 256 bytes are in the vocabulary, so any text has tokens and comes back unchanged; nothing is ever unknown.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from tools.demo_model.corpus import Corpus
from tools.model_folder import write_json

END, SYSTEM, USER, ASSISTANT = SPECIAL = ("<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
END_ID = 0

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message['role'] not in ['system', 'user', 'assistant'] -%}"
    "{{- raise_exception('role ' ~ message['role'] ~ ' is unknown; use system, user or assistant') -}}"
    "{%- endif -%}"
    "{{- '<|' ~ message['role'] ~ '|>' ~ message['content'] ~ '<|end|>' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)


def train(corpus: Corpus, *, vocab: int, seed: int) -> Tokenizer:
    """A tokenizer of exactly `vocab` tokens; the special ones come first, `<|end|>` with id 0."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    random = Random(seed)  # noqa: S311 - draws sentences, not secrets
    tokenizer.train_from_iterator(_texts(corpus, random), trainer)
    return tokenizer


def _texts(corpus: Corpus, random: Random) -> Iterator[str]:
    for _ in range(6000):
        yield from (turn.content for turn in corpus.conversation(random))


def write(tokenizer: Tokenizer, folder: Path, *, context: int) -> None:
    """tokenizer.json, tokenizer_config.json with the chat template, special_tokens_map.json."""
    tokenizer.save(str(folder / "tokenizer.json"))
    marks = {"eos_token": END, "pad_token": END}
    write_json(folder / "special_tokens_map.json", {**marks, "additional_special_tokens": list(SPECIAL[1:])})
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **marks,
            "additional_special_tokens": list(SPECIAL[1:]),
            "clean_up_tokenization_spaces": False,
            "model_max_length": context,
            "chat_template": CHAT_TEMPLATE,
        },
    )
