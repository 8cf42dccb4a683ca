"""The CPU backend: steps by torch."""
