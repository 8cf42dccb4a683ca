"""The reconcilers: a service's pass, signing keys, conditions, diagnostics of pods."""
