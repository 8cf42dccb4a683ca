"""Plans carried out: writes guarded by uid, bounded in rate, delayed when another controller reverts them."""
