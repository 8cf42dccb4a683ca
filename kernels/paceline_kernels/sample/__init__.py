"""Samples the next token of each row on the device, with its request's parameters."""
