"""Adds to the residual sum and computes its root mean square norm, the next product's input, in one pass."""
