"""Open requests: sent to a worker, streamed back, resumed elsewhere, settled."""
