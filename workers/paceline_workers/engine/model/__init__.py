"""A decoder-only transformer from a Hugging Face folder: config, weights, rotary angles, attention over pages."""
