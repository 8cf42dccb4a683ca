"""Executes plans: writes guarded by uid, limited in rate, delayed when another controller reverts them."""
