"""The backends that compute a step: CPU, GPU, or emulated."""
