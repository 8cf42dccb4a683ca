"""Fields of `/v1/chat/completions` and `/v1/completions`."""

from paceline_workers.server.openai.fields.field import (
    BOTH,
    CHAT,
    COMPLETIONS,
    GENERATING,
    OLD_VLLM,
    OPENAI,
    VLLM,
    RequestField,
    ignored,
    refused,
    served,
)

GENERATING_FIELDS: tuple[RequestField, ...] = (
    # What the request asks for
    served("model", GENERATING, BOTH, "one of the names in `/v1/models`"),
    served(
        "messages", CHAT, BOTH,
        "at most 2,048, text only; roles as the model's chat template knows them, with `tool_calls` and role `tool`; "
        "`developer` is `system` where it does not",
    ),
    served(
        "prompt", COMPLETIONS, BOTH,
        "one text, one list of token ids, or a list of up to 128 of either; each is answered as if it were asked alone",
    ),
    served(
        "add_generation_prompt", CHAT, VLLM,
        "whether the prompt ends where the assistant's turn begins; default `true` but for `continue_final_message`",
    ),
    served(
        "continue_final_message", CHAT, VLLM,
        "the answer continues the last message, which the chat template must write unchanged",
    ),
    served(
        "add_special_tokens", CHAT, VLLM,
        "`true` adds the tokens that stand around a prompt to what the template writes; default `false`",
    ),
    served(
        "add_special_tokens", COMPLETIONS, VLLM,
        "whether the tokens that stand around a prompt are added to a text; default `true`",
    ),
    served(
        "chat_template", CHAT, VLLM,
        "a template of the request's own, up to 65,536 characters; only where the worker's file has "
        "`trust_request_chat_template: true`, else refused, as in vLLM",
    ),
    served(
        "chat_template_kwargs", CHAT, VLLM,
        "variables of the chat template, such as `enable_thinking`; not those with fields of their own",
    ),
    served(
        "documents", CHAT, VLLM,
        "at most 256 objects, passed to the chat template; one that does not read them ignores them",
    ),
    served(
        "reasoning_effort", CHAT, BOTH,
        "passed to the chat template, with `enable_thinking` true unless it is `none`",
    ),
    served(
        "truncate_prompt_tokens", GENERATING, VLLM,
        "keeps so many of the prompt's tokens, those around a text among them; -1: what the context leaves",
    ),
    served(
        "truncation_side", GENERATING, VLLM,
        "`left` (default) keeps the end of the prompt, `right` its begin",
    ),
    served(
        "cache_salt", GENERATING, VLLM,
        "up to 1,024 characters; keys and values are shared only among requests of a tenant with the same one",
    ),
    served("include_reasoning", CHAT, VLLM, "false: the model reasons, and the answer does not tell what"),
    # The length of the answer
    served("max_tokens", CHAT, BOTH, "default: what the context leaves"),
    served(
        "max_tokens", COMPLETIONS, BOTH,
        "default 16; 0 generates nothing: with `echo` and `logprobs` it scores a prompt, which may fill the context",
    ),
    served("max_completion_tokens", CHAT, BOTH, "the newer name of `max_tokens`"),
    served("max_completion_tokens", COMPLETIONS, (), "as in a chat"),
    served(
        "min_tokens", GENERATING, VLLM,
        "no end before so many tokens, unless structured output leaves nothing else to follow: then it ends",
    ),
    served("stop", GENERATING, BOTH, "at most 16 texts of 256 characters, which are not shown"),
    served("stop_token_ids", GENERATING, VLLM, "at most 64 ids of the model's vocabulary"),
    served(
        "include_stop_str_in_output", GENERATING, VLLM,
        "`true`: the text ends with the stop text, or with the text of the stop token, instead of before it",
    ),
    served(
        "skip_special_tokens", GENERATING, VLLM,
        "`false` shows special tokens in the text by their names",
    ),
    served("ignore_eos", GENERATING, VLLM, "the model's end-of-sequence tokens do not end the answer"),
    # How the answer is reported
    served("stream", GENERATING, BOTH, "server-sent events"),
    served("stream_options", GENERATING, BOTH, "`include_usage`, `continuous_usage_stats`"),
    served(
        "n", GENERATING, BOTH,
        "at most 32 answers, apart in their noise; the prompt counts once, and each takes one of `maxSeqs` seats, as "
        "each beam does (`reservedPercent` keeps seats for a class)",
    ),
    served(
        "best_of", COMPLETIONS, OPENAI,
        "that many are generated and counted, the `n` likeliest per token are returned; never streamed",
    ),
    served("best_of", CHAT, OLD_VLLM, "the same"),
    served("echo", COMPLETIONS, BOTH, "the prompt's text before each answer; with `logprobs`, those of its tokens too"),
    served(
        "logprobs", CHAT, BOTH,
        "of the model's own distribution, before temperature and filters",
    ),
    served("top_logprobs", CHAT, BOTH, "up to 20, only with `logprobs`"),
    served(
        "logprobs", COMPLETIONS, BOTH,
        "a number up to 20; `top_logprobs` have the token itself too, so one more where it is not among the likeliest",
    ),
    served(
        "prompt_logprobs", GENERATING, VLLM,
        "up to 20 candidates of each token of the prompt, beside a chat's choices, or in those of a completion; never "
        "streamed. What is cached is computed again; at most 262,144 of a request, the prompts' own tokens among them",
    ),
    served(
        "return_token_ids", GENERATING, VLLM,
        "`token_ids` in each choice, the one that stopped included; `prompt_token_ids` beside a chat's choices, or "
        "in those of a completion; in streams in the first chunk",
    ),
    served(
        "return_tokens_as_token_ids", GENERATING, VLLM,
        "`logprobs` call a token `token_id:<id>`",
    ),
    served(
        "return_prompt_text", CHAT, VLLM,
        "`prompt_text`: what the chat template wrote; in streams with the opening chunk",
    ),
    served(
        "echo", CHAT, VLLM,
        "the last message before the answer, where the answer continues it (`continue_final_message`) or has its role",
    ),
    # How tokens are sampled
    served(
        "temperature", GENERATING, BOTH,
        "up to 100; left out, it is as the model's `generation_config.json` says, like the next four",
    ),
    served("top_p", GENERATING, BOTH, "above 0 and up to 1"),
    served("top_k", GENERATING, VLLM, "0 and -1 mean all"),
    served("min_p", GENERATING, VLLM, "from 0 to 1"),
    served("repetition_penalty", GENERATING, VLLM, "over prompt and output; above 0 and up to 100"),
    served("presence_penalty", GENERATING, BOTH, "from -2 to 2, over the output"),
    served("frequency_penalty", GENERATING, BOTH, "from -2 to 2, over the output"),
    served("logit_bias", GENERATING, BOTH, "at most 1,024 token ids, each from -100 to 100"),
    served(
        "allowed_token_ids", GENERATING, VLLM,
        "the only tokens that may be generated; without an end-of-sequence id among them the answer ends by length; at "
        "most 262,144 ids, those of all answers together",
    ),
    served(
        "bad_words", GENERATING, VLLM,
        "at most 128 texts of 256 characters; the last token of one is not generated where it would complete it, at "
        "the begin of a text or behind a space",
    ),
    served(
        "seed", GENERATING, BOTH,
        "from -2^63 to 2^63 - 1; in fp32 the same seed gives the same text, whatever else is computed with it; in bf16 "
        "near ties may turn with the batch unless `engine.batchInvariant` is set ([engine.md](engine.md)); without one "
        "an emulated model's text is chance, at temperature 0 too",
    ),
    served(
        "use_beam_search", GENERATING, VLLM,
        "the `n` best of a search with `best_of` (or `n`) beams, scored as transformers does; see below",
    ),
    served("length_penalty", GENERATING, VLLM, "of the search: -8 to 8"),
    served("early_stopping", GENERATING, OLD_VLLM, 'of the search: `true`, `false` or `"never"`'),
    # Structured output and tools
    served("response_format", GENERATING, BOTH, "`text`, `json_object`, `json_schema`"),
    served(
        "structured_outputs", GENERATING, VLLM,
        "one of `json`, `json_object`, `regex`, `choice` (up to 256 texts), `grammar` (Lark); with JSON, "
        "`whitespace_pattern` or `disable_any_whitespace`",
    ),
    *(
        served(name, GENERATING, OLD_VLLM, f"the older form of `structured_outputs.{name.removeprefix('guided_')}`")
        for name in ("guided_json", "guided_regex", "guided_choice", "guided_grammar")
    ),
    served("tools", CHAT, BOTH, "at most 128 tools; a format beside them takes the answer or calls"),
    served("tool_choice", CHAT, BOTH, "`none`, `auto`, `required` or one function"),
    served("parallel_tool_calls", CHAT, BOTH, "`false`: only the first call is returned, as in vLLM"),
    # Not served
    refused("audio", CHAT, OPENAI, "the models here write text"),
    refused("modalities", CHAT, OPENAI, "the models here write text", ["text"]),
    refused("functions", CHAT, OPENAI, "send `tools`, its newer form", []),
    refused("function_call", CHAT, OPENAI, "send `tool_choice`, its newer form", "none", "auto"),
    refused("web_search_options", CHAT, OPENAI, "nothing here searches; offer a function in `tools`"),
    refused("moderation", CHAT, OPENAI, "a service's `filters` judge texts"),
    refused("verbosity", CHAT, OPENAI, "say it in the prompt", "medium"),
    refused("suffix", COMPLETIONS, BOTH, "it needs a model made to fill in, which none of those served here is", ""),
    refused("prompt_embeds", COMPLETIONS, VLLM, "send text or token ids as `prompt`", []),
    refused(
        "logprob_token_ids", GENERATING, VLLM,
        "only the likeliest tokens get log-probabilities; send `logprobs`, in a chat with `top_logprobs`",
    ),
    refused(
        "thinking_token_budget", GENERATING, VLLM,
        "reasoning has no limit of its own; send `max_tokens`, which counts it too", -1,
    ),
    refused("watermarking", GENERATING, VLLM, "the choice of tokens is not marked", False),
    refused(
        "repetition_detection", GENERATING, VLLM,
        "a text that repeats itself is not ended; send `frequency_penalty`, `stop` or `max_tokens`", {},
    ),
    refused("kv_transfer_params", GENERATING, VLLM, "keys and values come from no other engine", {}),
    refused("ec_transfer_params", GENERATING, VLLM, "images are not taken", {}),
    refused("vllm_xargs", GENERATING, VLLM, "there are none of vLLM's extensions", {}),
    refused(
        "logits_processors", GENERATING, OLD_VLLM,
        "no code of a request is run; send `logit_bias`, `allowed_token_ids` or `bad_words`", [],
    ),
    refused("guided_whitespace_pattern", GENERATING, OLD_VLLM, "send `structured_outputs.whitespace_pattern`"),
    # What cannot change the answer
    ignored("user", GENERATING, BOTH, "the API key names the caller"),
    ignored("safety_identifier", CHAT, OPENAI, "the API key names the caller"),
    ignored("metadata", CHAT, OPENAI, "answers are not kept"),
    ignored("store", CHAT, OPENAI, "answers are not kept"),
    ignored("service_tier", CHAT, OPENAI, "the header `x-paceline-class` chooses a class"),
    ignored("priority", GENERATING, VLLM, "the header `x-paceline-class` chooses a class"),
    ignored("prediction", CHAT, OPENAI, "a hint for speed"),
    ignored("prompt_cache_key", CHAT, OPENAI, "requests find their prefixes without it"),
    ignored("prompt_cache_options", CHAT, OPENAI, "prefixes are kept while there is room"),
    ignored("prompt_cache_retention", CHAT, OPENAI, "prefixes are kept while there is room"),
    ignored("request_id", GENERATING, VLLM, "the header `x-request-id` names a request"),
    ignored("session_id", GENERATING, VLLM, "requests find their prefixes without it"),
    ignored("spaces_between_special_tokens", GENERATING, VLLM, "no spaces are added between them"),
    ignored("stream_interval", GENERATING, VLLM, "a chunk holds what has come by then"),
    ignored("media_io_kwargs", CHAT, VLLM, "of images and sound, which are not taken"),
    ignored("mm_processor_kwargs", CHAT, VLLM, "of images and sound, which are not taken"),
    ignored("return_mm_kwargs", GENERATING, VLLM, "without effect on this route, as in vLLM"),
    ignored("return_token_offsets", GENERATING, VLLM, "without effect on this route, as in vLLM"),
    ignored("routed_experts_prompt_start", GENERATING, VLLM, "routing of experts is not reported"),
    ignored("guided_decoding_backend", GENERATING, OLD_VLLM, "there is one"),
)  # fmt: skip
"""In the order of docs/api.md."""
