"""The operator: makes the cluster match the InferenceServices; it makes no scaling decisions and serves no requests."""
