"""The handlers that compute: generation and embeddings."""
