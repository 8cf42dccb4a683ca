"""The backend for GPUs: paceline's Triton kernels, steps laid out ahead, results one step late.

`device` is all that a GPU does differently from the CPU that stands in for it in tests; `cache` holds the pages,
`decoder` the model, `step_inputs` the inputs of a step and the recorded graphs, `runner` the order of all that.
"""
