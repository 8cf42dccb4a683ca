"""What should exist and what to do about it: pure functions over what was observed."""
