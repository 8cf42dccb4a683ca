"""Tool calls in a model's text: one file for each way to write them, one parser that finds them in a stream. Pure."""
