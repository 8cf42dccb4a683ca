"""The OpenAI API's shapes: request bodies to jobs, output to answers."""
