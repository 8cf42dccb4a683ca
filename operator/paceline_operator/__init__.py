"""The operator: makes the cluster hold what InferenceServices wish; no decision of scaling, no request."""
