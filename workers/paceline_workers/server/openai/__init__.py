"""The OpenAI API: turns request bodies into jobs and output into answers."""
