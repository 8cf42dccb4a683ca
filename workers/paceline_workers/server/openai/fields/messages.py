"""Fields of `/v1/messages` and of the count of its tokens; OpenAI has no such routes."""

from paceline_workers.server.openai.fields.row import COUNT_TOKENS, COUNTED, MESSAGES, VLLM, ignored, refused, served

MESSAGES_FIELDS = (
    served("model", COUNTED, VLLM, "one of those that `/v1/models` lists"),
    served(
        "messages", COUNTED, VLLM,
        "up to 2,048 of `user`, `assistant` and `system`, with blocks `text`, `thinking`, `tool_use`, `tool_result`; "
        "text only; an answer goes on with the assistant's text where that stands last; a result with `is_error` "
        "begins with `Error`",
    ),
    served("max_tokens", MESSAGES, VLLM, "required; reasoning included"),
    served(
        "system", COUNTED, VLLM,
        "a text or blocks of text; stands before the messages; a block `x-anthropic-billing-header`, which changes "
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
        "`enable_thinking` of the chat template; `display: omitted`: it is not told; `budget_tokens` bounds nothing",
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
    ignored("workspace_id", MESSAGES, (), "who asks is told by the key"),
    ignored("service_tier", MESSAGES, (), "the class of a request is named by a header"),
    ignored("cache_control", COUNTED, (), "prompts are cached by what they hold"),
    refused("output_format", MESSAGES, (), "send `output_config.format`"),
    refused("container", MESSAGES, (), "nothing is run here"),
    refused("mcp_servers", MESSAGES, (), "no server is asked here", []),
    refused("kv_transfer_params", MESSAGES, VLLM, "keys and values come from no other engine", {}),
)  # fmt: skip
"""In the order of docs/api.md."""
