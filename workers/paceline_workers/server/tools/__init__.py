"""Tool calls in a model's text: the formats of model families, and one parser that finds calls in a stream. Pure."""
