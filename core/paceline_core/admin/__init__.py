"""The admin ports of every process: bounded requests, allowed hosts."""
