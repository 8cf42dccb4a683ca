"""Planted faults: seeded mutations of product functions, found again after renames, and the tests that catch them."""
