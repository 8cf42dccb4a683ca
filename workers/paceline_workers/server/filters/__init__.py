"""Filters between a model's text and its client, enabled by configuration (`spec.filters`, stage output)."""
