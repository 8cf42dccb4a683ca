"""The reconcilers: one service's pass, signing keys, conditions, diagnostics of pods."""
