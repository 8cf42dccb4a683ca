"""The sum that runs through the layers, and the root mean square norm of it that the next product takes: one pass."""
