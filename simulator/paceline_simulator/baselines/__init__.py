"""Rival autoscalers as pure functions, each with the parameters and arithmetic of its source."""
