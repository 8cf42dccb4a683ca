"""Copies whole pages in all layers: from page to page (fork, compaction), and to and from host memory.

Between device and host a page passes through a row of a staging tensor on the device: `gather_pages` makes it
contiguous, and one copy by the driver moves it at the link's speed while kernels run; once gathered, its page may be
overwritten. `scatter_pages` does the reverse.
"""
