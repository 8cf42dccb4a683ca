"""Which tiles of which contexts each program of a fixed grid attends to."""
