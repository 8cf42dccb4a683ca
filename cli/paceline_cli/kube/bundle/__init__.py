"""What support needs to see of an install, in one file, with nothing in it that is secret."""
