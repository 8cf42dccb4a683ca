"""Whole pages over all layers: from page to page (fork, compaction), and to and from what goes to host memory.

Between device and host a page travels through a row of a staging tensor on the device: `gather_pages` makes one
contiguous piece of it, which one copy of the driver moves at the link's speed while kernels run, and as soon as it is
gathered its page may be overwritten; `scatter_pages` is the way back.
"""
