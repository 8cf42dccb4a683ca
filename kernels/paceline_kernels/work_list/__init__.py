"""Assigns tiles of contexts to the programs of a fixed grid."""
