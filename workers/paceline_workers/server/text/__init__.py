"""Text and tokens: chat templates, tokenizer, detokenizing, reasoning."""
