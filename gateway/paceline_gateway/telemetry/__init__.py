"""The gateway's telemetry: its rows of the metric registry, one log line a request, and spans."""
