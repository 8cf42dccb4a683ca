"""Fields of the routes that generate no text."""

from paceline_workers.server.openai.fields.row import (
    BOTH,
    DETOKENIZE,
    EMBEDDINGS,
    TOKENIZE,
    VLLM,
    RequestField,
    ignored,
    refused,
    served,
)

OTHER_FIELDS: tuple[RequestField, ...] = (
    served("model", EMBEDDINGS, BOTH, "one of the names in `/v1/models`"),
    served("input", EMBEDDINGS, BOTH, "one text, one list of token ids, or up to 2,048 of either"),
    served(
        "encoding_format", EMBEDDINGS, BOTH,
        "`float`, or `base64` (float32, little-endian), which OpenAI's client asks for by itself",
    ),
    served("dimensions", EMBEDDINGS, BOTH, "the size of the model's vectors, or left out"),
    served(
        "truncate_prompt_tokens", EMBEDDINGS, VLLM,
        "keeps so many tokens of an input, those around a text among them; -1: as many as the model takes",
    ),
    served(
        "truncation_side", EMBEDDINGS, VLLM,
        "`left` (default) keeps the end of an input, `right` its begin",
    ),
    served(
        "add_special_tokens", EMBEDDINGS, VLLM,
        "whether the tokens that stand around a text are added; default `true`",
    ),
    served(
        "cache_salt", EMBEDDINGS, VLLM,
        "as in a chat",
    ),
    refused("messages", EMBEDDINGS, VLLM, "send `input`", []),
    refused("padding", EMBEDDINGS, VLLM, "no input is padded", "do_not_pad"),
    refused("embed_dtype", EMBEDDINGS, VLLM, "vectors are float32", "float32"),
    refused("endianness", EMBEDDINGS, VLLM, "vectors are little-endian", "native", "little"),
    refused("use_activation", EMBEDDINGS, VLLM, "vectors have length 1", True),
    refused("chat_template", EMBEDDINGS, VLLM, "there are no `messages`; send `input`"),
    ignored("chat_template_kwargs", EMBEDDINGS, VLLM, "of `messages`"),
    ignored("add_generation_prompt", EMBEDDINGS, VLLM, "of `messages`"),
    ignored("continue_final_message", EMBEDDINGS, VLLM, "of `messages`"),
    ignored("user", EMBEDDINGS, BOTH, "who asks is told by the key"),
    ignored("priority", EMBEDDINGS, VLLM, "the header `x-paceline-class` chooses a class"),
    ignored("request_id", EMBEDDINGS, VLLM, "the header `x-request-id` names a request"),
    ignored("mm_processor_kwargs", EMBEDDINGS, VLLM, "of images and sound, which are not taken"),
    ignored("media_io_kwargs", EMBEDDINGS, VLLM, "of images and sound, which are not taken"),
    served("model", TOKENIZE, VLLM, "may be left out at a worker's own port"),
    served(
        "prompt", TOKENIZE, VLLM,
        "a text of at most 262,144 characters, or 16 for each token of the context where that is more",
    ),
    served("messages", TOKENIZE, VLLM, "a chat instead of a prompt"),
    served("tools", TOKENIZE, VLLM, "as in a chat"),
    *(
        served(name, TOKENIZE, (), "as in a chat")
        for name in ("tool_choice", "documents", "reasoning_effort")
    ),
    served("add_special_tokens", TOKENIZE, VLLM, "left out, it is as the generating route does"),
    served("add_generation_prompt", TOKENIZE, VLLM, "as in a chat"),
    served(
        "continue_final_message", TOKENIZE, VLLM,
        "as in a chat",
    ),
    served("chat_template", TOKENIZE, VLLM, "as in a chat"),
    served(
        "chat_template_kwargs", TOKENIZE, VLLM,
        "as in a chat",
    ),
    served("return_token_strs", TOKENIZE, VLLM, "also what the vocabulary calls each token"),
    ignored("media_io_kwargs", TOKENIZE, VLLM, "of images and sound, which are not taken"),
    ignored("mm_processor_kwargs", TOKENIZE, VLLM, "of images and sound, which are not taken"),
    served("model", DETOKENIZE, VLLM, "may be left out at a worker's own port"),
    served("tokens", DETOKENIZE, VLLM, "at most 131,072, or a longer context: their text, special tokens by name"),
)  # fmt: skip
"""In the order of docs/api.md."""
