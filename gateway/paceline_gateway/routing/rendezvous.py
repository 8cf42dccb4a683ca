"""Highest random weight hashing: which worker a key belongs to, the same at every gateway and without a table.

Each pair of key and worker has a weight of its own and the heaviest wins, so a worker that joins or leaves moves only
the keys that it wins or had won: one in N (Thaler and Ravishankar, 1996).
"""

from xxhash import xxh3_64_intdigest


def weight(key: str, worker: str) -> int:
    """The weight of a worker for a key of hexadecimal digits."""
    return xxh3_64_intdigest(worker.encode(), int(key, 16))
