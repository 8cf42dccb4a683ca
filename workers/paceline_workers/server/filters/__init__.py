"""What may stand between a model's text and its client, switched on by configuration (`spec.filters`, stage output)."""
