"""Requests and responses over HTTP: exchange, callers, SSE, WebSocket."""
