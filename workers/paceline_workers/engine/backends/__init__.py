"""Where a step is computed: CPU, GPU, or emulated."""
