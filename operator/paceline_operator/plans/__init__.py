"""What should exist and how to get there: pure functions over what was observed."""
