"""Checks grammars in a separate process before the engine compiles them."""
