"""How far a reader walks through the code: the way of one streamed chat and of one scale-up, traced."""
