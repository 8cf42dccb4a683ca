"""The commands of `paceline` on a local run."""
