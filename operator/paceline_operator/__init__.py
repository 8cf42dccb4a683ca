"""The operator: makes the cluster hold what InferenceServices specify; no decision of scaling, no request."""
