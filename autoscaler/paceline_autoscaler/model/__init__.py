"""Observation, the work it implies, the capacity of a replica, and what is learned from both. Pure."""
