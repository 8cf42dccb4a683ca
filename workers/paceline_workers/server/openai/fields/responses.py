"""Fields of `/v1/responses`, whose own come before those that a chat has too."""

from paceline_workers.server.openai.fields.row import BOTH, OPENAI, RESPONSES, VLLM, ignored, refused, served

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
        "`message.output_text.logprobs`; `reasoning.encrypted_content` adds nothing, since reasoning is told in clear",
    ),
    served("top_logprobs", RESPONSES, BOTH, "with `include` of `message.output_text.logprobs`"),
    served(
        "truncation", RESPONSES, BOTH,
        "`auto`: an input that is too long loses its oldest items, whole; `disabled` (default): it is refused",
    ),
    served("metadata", RESPONSES, BOTH, "told again in the response"),
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
    refused("enable_response_messages", RESPONSES, VLLM, "prompts are told by `return_prompt_text` of a chat", False),
    refused("vllm_xargs", RESPONSES, VLLM, "there are none of vLLM's extensions", {}),
    refused("kv_transfer_params", RESPONSES, VLLM, "keys and values come from no other engine", {}),
)  # fmt: skip
"""In the order of docs/api.md."""
