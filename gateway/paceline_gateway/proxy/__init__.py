"""Open requests: dispatched to a worker, streamed back, resumed at another worker, settled."""
