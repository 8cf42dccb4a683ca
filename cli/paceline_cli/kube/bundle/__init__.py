"""The data about an install that support needs, in one file without secrets."""
