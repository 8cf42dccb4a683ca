"""Merges parts of one softmax that were computed separately."""
