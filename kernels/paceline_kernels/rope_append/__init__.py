"""The steps between the product of queries, keys and values and attention: norm, rotation, and writing into pages."""
