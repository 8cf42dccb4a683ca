"""What min-p, top-k and top-p leave of a row, found without sorting it."""
