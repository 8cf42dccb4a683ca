"""The request fields of vLLM's main branch of November 2026, as its protocol files list them."""

from paceline_workers.server.openai.fields import FieldRoute

_SHARED = """
    model frequency_penalty logit_bias logprobs max_tokens n presence_penalty response_format seed stop stream
    stream_options temperature top_p user use_beam_search top_k min_p repetition_penalty watermarking length_penalty
    stop_token_ids include_stop_str_in_output ignore_eos min_tokens skip_special_tokens spaces_between_special_tokens
    truncate_prompt_tokens truncation_side prompt_logprobs logprob_token_ids allowed_token_ids bad_words echo
    add_special_tokens structured_outputs priority request_id session_id return_tokens_as_token_ids return_token_ids
    routed_experts_prompt_start return_token_offsets return_mm_kwargs cache_salt kv_transfer_params ec_transfer_params
    vllm_xargs repetition_detection thinking_token_budget stream_interval
"""
_CHAT = """
    messages top_logprobs max_completion_tokens tools tool_choice reasoning_effort include_reasoning
    parallel_tool_calls documents return_prompt_text
"""
_EMBEDDINGS = """
    model user truncate_prompt_tokens padding truncation_side request_id priority cache_salt input add_special_tokens
    messages encoding_format embed_dtype endianness dimensions use_activation
"""
_SCORING = """
    model user truncate_prompt_tokens padding truncation_side request_id priority mm_processor_kwargs cache_salt
    use_activation max_tokens_per_query max_tokens_per_doc instruction chat_template_kwargs
"""
_SCORE = "text_1 text_2 queries documents items data_1 data_2"
_RESPONSES = """
    background include input instructions max_output_tokens max_tool_calls metadata model logit_bias
    parallel_tool_calls previous_response_id prompt reasoning service_tier store stream temperature text tool_choice
    tools top_logprobs top_p top_k truncation user skip_special_tokens include_stop_str_in_output prompt_cache_key
    request_id mm_processor_kwargs priority cache_salt enable_response_messages previous_input_messages
    previous_response structured_outputs repetition_penalty seed stop ignore_eos vllm_xargs kv_transfer_params
    presence_penalty frequency_penalty include_reasoning
"""
_MESSAGES = """
    model messages max_tokens metadata output_config stop_sequences stream system temperature tool_choice tools top_k
    top_p kv_transfer_params chat_template_kwargs
"""
_COUNT_TOKENS = "model messages system tool_choice tools chat_template_kwargs"
_TOKENIZE = "model prompt messages tools add_special_tokens return_token_strs"
_TEMPLATE = """
    add_generation_prompt continue_final_message chat_template chat_template_kwargs media_io_kwargs mm_processor_kwargs
"""

VLLM_FIELDS: dict[FieldRoute, set[str]] = {
    FieldRoute.CHAT: {*_SHARED.split(), *_TEMPLATE.split(), *_CHAT.split()},
    FieldRoute.COMPLETIONS: {*_SHARED.split(), "prompt", "suffix", "prompt_embeds"},
    FieldRoute.EMBEDDINGS: {*_TEMPLATE.split(), *_EMBEDDINGS.split()},
    FieldRoute.SCORE: {*_SCORING.split(), *_SCORE.split()},
    FieldRoute.RERANK: {*_SCORING.split(), "query", "documents", "top_n"},
    FieldRoute.RESPONSES: set(_RESPONSES.split()),
    FieldRoute.MESSAGES: set(_MESSAGES.split()),
    FieldRoute.COUNT_TOKENS: set(_COUNT_TOKENS.split()),
    FieldRoute.TOKENIZE: {*_TEMPLATE.split(), *_TOKENIZE.split()},
    FieldRoute.DETOKENIZE: {"model", "tokens"},
}
