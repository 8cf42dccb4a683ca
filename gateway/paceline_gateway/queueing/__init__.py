"""Who waits for which service, in what order, and for how long at most. Pure."""
