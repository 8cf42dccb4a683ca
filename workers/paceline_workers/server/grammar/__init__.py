"""Grammars checked in a process of their own before the engine compiles them."""
