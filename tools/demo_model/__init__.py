"""Trains the demo model that `builtin://demo` names; run it with `python -m tools.demo_model`."""
