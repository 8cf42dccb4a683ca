"""What fits on which accelerator, how long a step takes and what it costs. Pure: no torch, no clock, no I/O."""
