"""What lies between the product of queries, keys and values and attention: norm, rotation, and the write into pages."""
