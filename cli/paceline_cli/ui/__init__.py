"""Rows, tables and screens of `paceline up`, `status` and `top`. Reading, computing and drawing are separate."""
