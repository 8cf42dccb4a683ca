"""Attention of one query, or a few, of each sequence to its pages."""
