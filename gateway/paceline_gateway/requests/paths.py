"""The paths whose answers hold no generated tokens, by the names that OpenAI and vLLM have for them."""

from collections.abc import Mapping
from typing import Final

EMBEDDINGS: Final = "/v1/embeddings"
SCORE: Final = ("/v1/score", "/score")
RERANK: Final = ("/v1/rerank", "/v2/rerank", "/rerank")
TOKENIZERS: Final = ("/tokenize", "/detokenize", "/v1/messages/count_tokens")
WITHOUT_OUTPUT: Final = frozenset({EMBEDDINGS, *SCORE, *RERANK, *TOKENIZERS})
TEXT_LISTS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(SCORE, ("text_1", "text_2", "queries", "documents", "items", "data_1", "data_2")),
    **dict.fromkeys(RERANK, ("query", "documents")),
}
"""Fields that hold texts, each a prompt of its own."""
