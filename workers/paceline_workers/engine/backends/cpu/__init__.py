"""The CPU backend, in torch."""
