"""Discrete-event simulation of a service: the production parts under a virtual clock, with the step clock as engine."""
