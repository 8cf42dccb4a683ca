"""Fields of `/v1/messages`; OpenAI has no such route."""

from paceline_workers.server.openai.fields.row import MESSAGES, VLLM, ignored, refused, served

MESSAGES_FIELDS = (
    served("model", MESSAGES, VLLM, "one of those that `/v1/models` lists"),
    served(
        "messages", MESSAGES, VLLM,
        "up to 2,048 of `user` and `assistant`, with blocks `text`, `thinking`, `tool_use`, `tool_result`; text only",
    ),
    served("max_tokens", MESSAGES, VLLM, "required; reasoning included"),
    served("system", MESSAGES, VLLM, "a text or blocks of text; stands before the messages"),
    served("stream", MESSAGES, VLLM, "answer with events as the model writes"),
    served("stop_sequences", MESSAGES, VLLM, "as `stop` of a chat"),
    served("temperature", MESSAGES, VLLM, "as in a chat"),
    served("top_p", MESSAGES, VLLM, "as in a chat"),
    served("top_k", MESSAGES, VLLM, "as in a chat"),
    served("tools", MESSAGES, VLLM, "at most 128 with an `input_schema`; none that a server would run"),
    served("tool_choice", MESSAGES, VLLM, "`auto`, `any`, `tool`, `none`, and `disable_parallel_tool_use`"),
    served("thinking", MESSAGES, (), "`enable_thinking` of the chat template; `budget_tokens` bounds nothing"),
    served("chat_template_kwargs", MESSAGES, VLLM, "as in a chat"),
    ignored("metadata", MESSAGES, VLLM, "names an end user"),
    ignored("service_tier", MESSAGES, (), "the class of a request is named by a header"),
    ignored("cache_control", MESSAGES, (), "prompts are cached by what they hold"),
    refused("output_config", MESSAGES, VLLM, "a schema of the answer; send a chat's `response_format`", {}),
    refused("container", MESSAGES, (), "nothing is run here"),
    refused("mcp_servers", MESSAGES, (), "no server is asked here", []),
    refused("kv_transfer_params", MESSAGES, VLLM, "keys and values from another engine", {}),
)  # fmt: skip
"""In the order of docs/api.md."""
