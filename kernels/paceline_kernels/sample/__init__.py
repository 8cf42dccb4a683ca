"""The next token of each row, chosen on the device from what its request asks for."""
