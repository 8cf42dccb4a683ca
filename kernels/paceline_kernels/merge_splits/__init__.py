"""Parts of one softmax, computed apart, put together."""
