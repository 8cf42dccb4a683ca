"""The backend for GPUs: paceline's Triton kernels, steps laid out ahead, results one step late.

`device` is everything that differs between a GPU and the CPU that replaces it in tests; `cache` holds the pages,
`decoder` the model, `step_inputs` the inputs of a step and the recorded graphs; `runner` runs the steps in order.
"""
