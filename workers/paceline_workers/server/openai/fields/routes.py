"""The fields of all routes other than chat and text completions.

`/v1/responses` lists its own fields before those that it shares with a chat. `/v1/messages` and its token count are
Anthropic's routes, which OpenAI does not have. `/v1/score`, `/v1/rerank` and the last table generate no text.
"""

from paceline_workers.server.openai.fields.field import (
    BOTH,
    COUNT_TOKENS,
    COUNTED,
    DETOKENIZE,
    EMBEDDINGS,
    MESSAGES,
    OPENAI,
    RERANK,
    RESPONSES,
    SCORE,
    SCORING,
    TOKENIZE,
    VLLM,
    RequestField,
    ignored,
    refused,
    served,
)

MESSAGES_FIELDS = (
    served("model", COUNTED, VLLM, "one of those that `/v1/models` lists"),
    served(
        "messages", COUNTED, VLLM,
        "up to 2,048 of `user`, `assistant` and `system`, with blocks `text`, `thinking`, `tool_use`, `tool_result`; "
        "text only; an answer continues the assistant's text where that comes last; a result with `is_error` "
        "begins with `Error`",
    ),
    served("max_tokens", MESSAGES, VLLM, "required; reasoning included"),
    served(
        "system", COUNTED, VLLM,
        "a text or blocks of text; comes before the messages; a block `x-anthropic-billing-header`, which changes "
        "with each request, is left out, as in vLLM",
    ),
    served("stream", MESSAGES, VLLM, "answer with events as the model writes"),
    served("stop_sequences", MESSAGES, VLLM, "as `stop` of a chat"),
    served("temperature", MESSAGES, VLLM, "as in a chat"),
    served("top_p", MESSAGES, VLLM, "as in a chat"),
    served("top_k", MESSAGES, VLLM, "as in a chat"),
    served("tools", COUNTED, VLLM, "at most 128 with an `input_schema`; none that a server would run"),
    served("tool_choice", COUNTED, VLLM, "`auto`, `any`, `tool`, `none`, and `disable_parallel_tool_use`"),
    served(
        "thinking", COUNTED, (),
        "`enable_thinking` of the chat template; `display: omitted`: not returned; `budget_tokens` bounds nothing",
    ),
    served("chat_template_kwargs", COUNTED, VLLM, "as in a chat"),
    served(
        "output_config", MESSAGES, VLLM,
        "`format`: `json_schema` with its `schema`; `effort` as `reasoning_effort` of a chat",
    ),
    served("output_config", COUNT_TOKENS, (), "as above"),
    ignored("metadata", MESSAGES, VLLM, "names an end user"),
    ignored("diagnostics", MESSAGES, (), "what was cached is not compared"),
    ignored("inference_geo", MESSAGES, (), "the cluster is where it is"),
    ignored("speed", COUNTED, (), "the class of a request is named by a header"),
    ignored("user_profile_id", MESSAGES, (), "names an end user"),
    ignored("workspace_id", MESSAGES, (), "the API key names the caller"),
    ignored("service_tier", MESSAGES, (), "the class of a request is named by a header"),
    ignored("cache_control", COUNTED, (), "prompts are cached by what they hold"),
    refused("output_format", MESSAGES, (), "send `output_config.format`"),
    refused("container", MESSAGES, (), "nothing is run here"),
    refused("mcp_servers", MESSAGES, (), "no server is asked here", []),
    refused("kv_transfer_params", MESSAGES, VLLM, "keys and values come from no other engine", {}),
)  # fmt: skip
"""In the order of docs/api.md."""

RESPONSES_FIELDS = (
    served("model", RESPONSES, BOTH, "one of those that `/v1/models` lists"),
    served(
        "input", RESPONSES, BOTH,
        "a text, or up to 4,096 items: `message`, `reasoning`, `function_call`, `function_call_output`; text only",
    ),
    served("instructions", RESPONSES, BOTH, "stand before the input as a turn of role `system`"),
    served("stream", RESPONSES, BOTH, "answer with events as the model writes"),
    served("max_output_tokens", RESPONSES, BOTH, "reasoning included; default: what the context leaves"),
    served("text", RESPONSES, BOTH, "`format`: `text`, `json_object`, `json_schema`; no `verbosity` but `medium`"),
    served("reasoning", RESPONSES, BOTH, "`effort` as `reasoning_effort` of a chat; no `summary` is made"),
    served("tools", RESPONSES, BOTH, "at most 128 of type `function`; none that a server would run"),
    served("tool_choice", RESPONSES, BOTH, "`none`, `auto`, `required` or a function"),
    served("parallel_tool_calls", RESPONSES, BOTH, "false: at most one call"),
    served(
        "include", RESPONSES, BOTH,
        "`message.output_text.logprobs`; `reasoning.encrypted_content` adds nothing: reasoning is returned in clear",
    ),
    served("top_logprobs", RESPONSES, BOTH, "with `include` of `message.output_text.logprobs`"),
    served(
        "truncation", RESPONSES, BOTH,
        "`auto`: an input that is too long loses its oldest items, whole; `disabled` (default): it is refused",
    ),
    served("metadata", RESPONSES, BOTH, "repeated in the response"),
    served("temperature", RESPONSES, BOTH, "as in a chat"),
    served("top_p", RESPONSES, BOTH, "as in a chat"),
    *(
        served(name, RESPONSES, VLLM, "as in a chat")
        for name in (
            "top_k", "logit_bias", "skip_special_tokens", "include_stop_str_in_output", "cache_salt",
            "structured_outputs", "repetition_penalty", "seed", "stop", "ignore_eos", "presence_penalty",
            "frequency_penalty", "include_reasoning",
        )
    ),
    *(served(name, RESPONSES, (), "as in a chat") for name in ("min_p", "chat_template_kwargs")),
    ignored("store", RESPONSES, BOTH, "nothing is kept; the response says `store: false`"),
    ignored("user", RESPONSES, BOTH, "names an end user"),
    ignored("safety_identifier", RESPONSES, OPENAI, "names an end user"),
    ignored("prompt_cache_key", RESPONSES, BOTH, "prompts are cached by what they hold"),
    ignored("prompt_cache_retention", RESPONSES, OPENAI, "what is cached stays while there is room"),
    ignored("prompt_cache_options", RESPONSES, OPENAI, "as above"),
    ignored("service_tier", RESPONSES, BOTH, "the class of a request is named by a header"),
    ignored("stream_options", RESPONSES, OPENAI, "no event is obfuscated"),
    ignored("max_tool_calls", RESPONSES, BOTH, "counts calls of tools that a server runs; none does"),
    ignored("request_id", RESPONSES, VLLM, "send the header `x-request-id`"),
    ignored("priority", RESPONSES, VLLM, "the class of a request is named by a header"),
    ignored("mm_processor_kwargs", RESPONSES, VLLM, "of images and sound, which are not taken"),
    ignored("image", RESPONSES, OPENAI, "of images, which are not made"),
    ignored("background_options", RESPONSES, OPENAI, "nothing runs in the background"),
    refused("background", RESPONSES, BOTH, "nothing is kept to be asked for later; send `stream`", False),
    refused("previous_response_id", RESPONSES, BOTH, "nothing is kept; send the earlier items as `input`"),
    refused("previous_response", RESPONSES, VLLM, "send the earlier items as `input`"),
    refused("previous_input_messages", RESPONSES, VLLM, "send the earlier items as `input`", []),
    refused("conversation", RESPONSES, OPENAI, "nothing is kept; send the earlier items as `input`"),
    refused("prompt", RESPONSES, BOTH, "no prompts are kept; send `instructions` and `input`"),
    refused("context_management", RESPONSES, OPENAI, "nothing is compacted; send fewer items as `input`", []),
    refused("moderation", RESPONSES, OPENAI, "a service's `filters` judge texts"),
    refused("access_programs", RESPONSES, OPENAI, "there are none", []),
    refused("enable_response_messages", RESPONSES, VLLM, "a chat's `return_prompt_text` returns the prompt", False),
    refused("vllm_xargs", RESPONSES, VLLM, "there are none of vLLM's extensions", {}),
    refused("kv_transfer_params", RESPONSES, VLLM, "keys and values come from no other engine", {}),
)  # fmt: skip
"""In the order of docs/api.md."""

SCORING_FIELDS: tuple[RequestField, ...] = (
    served("model", SCORING, VLLM, "one of the names in `/v1/models`"),
    served(
        "text_1", SCORE, VLLM,
        'the queries: one text, or a list of up to 2,048; also `{"text": ...}` for each',
    ),
    served("text_2", SCORE, VLLM, "what they are compared with: one query with each, or each with its own"),
    served("queries", SCORE, VLLM, "another name of `text_1`, beside `documents` or `items`"),
    served("documents", SCORE, VLLM, "another name of `text_2`"),
    served("items", SCORE, VLLM, "another name of `text_2`"),
    served("data_1", SCORE, VLLM, "another name of `text_1`, beside `data_2`"),
    served("data_2", SCORE, VLLM, "another name of `text_2`"),
    served("query", RERANK, VLLM, 'one text, or `{"text": ...}`'),
    served("documents", RERANK, VLLM, 'a list of up to 2,048 texts, each also as `{"text": ...}`'),
    served("top_n", RERANK, VLLM, "how many of the best are returned; 0 (default): all"),
    served("return_documents", RERANK, (), "`false` leaves the texts out of the results; Jina's and Cohere's"),
    served("max_tokens_per_query", SCORING, VLLM, "keeps so many tokens at a query's begin; 0 (default): all"),
    served("max_tokens_per_doc", SCORING, VLLM, "the same of the texts that it is compared with"),
    served("truncate_prompt_tokens", SCORING, VLLM, "of each text, as of an input of `/v1/embeddings`"),
    served("truncation_side", SCORING, VLLM, "as of `/v1/embeddings`"),
    served("cache_salt", SCORING, VLLM, "as in a chat"),
    refused("instruction", SCORING, VLLM, "write it into the query"),
    refused("chat_template_kwargs", SCORING, VLLM, "no template writes what is embedded", {}),
    refused("padding", SCORING, VLLM, "no text is padded", "do_not_pad"),
    refused("rank_fields", RERANK, (), "Cohere's; a document is its `text`", ["text"], []),
    refused("max_chunks_per_doc", RERANK, (), "Cohere's; a document is embedded whole", 1),
    ignored("use_activation", SCORING, VLLM, "a cosine stays as it is"),
    ignored("user", SCORING, VLLM, "the API key names the caller"),
    ignored("priority", SCORING, VLLM, "the header `x-paceline-class` chooses a class"),
    ignored("request_id", SCORING, VLLM, "the header `x-request-id` names a request"),
    ignored("mm_processor_kwargs", SCORING, VLLM, "of images and sound, which are not taken"),
)  # fmt: skip
"""In the order of docs/api.md."""

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
    ignored("user", EMBEDDINGS, BOTH, "the API key names the caller"),
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
