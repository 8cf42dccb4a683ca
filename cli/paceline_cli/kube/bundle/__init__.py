"""The view of an install that support needs, in one file, with nothing in it that is secret."""
