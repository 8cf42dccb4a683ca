"""The commands of `paceline` on a local run, one module each."""
