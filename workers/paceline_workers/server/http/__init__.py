"""HTTP requests and responses: exchange, callers, SSE, WebSocket."""
