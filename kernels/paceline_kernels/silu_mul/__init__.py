"""The gate of a gated MLP: silu(gate) * up, from one row that holds both."""
