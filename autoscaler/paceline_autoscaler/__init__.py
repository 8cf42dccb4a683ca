"""Signals, demand, capacity, policies, decisions, and the loop that carries them out."""
