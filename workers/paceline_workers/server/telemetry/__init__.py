"""Metrics and spans of the API process."""
