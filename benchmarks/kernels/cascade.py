"""A shared prefix read once by all who have it, against read by each."""

import torch
from benchmarks.harness import Row
from benchmarks.kernels.bench import Bench, ratio_row
from benchmarks.kernels.decode import Batch, contexts
from benchmarks.kernels.timing import Contestant, ratios

from paceline_kernels.cascade import Groups, cascade_decode
from paceline_kernels.paged_decode.launch import paged_decode
from paceline_kernels.paging import Sequences
from paceline_kernels.work_list.launch import Work, plan_work

K = 1024
SHARED, TAIL, MEMBERS = 16 * K, K, 32


def measure(bench: Bench, *, shared: int = SHARED, tail: int = TAIL, members: int = MEMBERS) -> list[Row]:
    """A decode step of sequences with one prefix: read once, against read by each."""
    model = bench.model
    whole = contexts(bench, Batch("whole", (shared + tail,) * members))
    prefix = torch.arange(shared // model.page, dtype=torch.int32, device=bench.device)
    table = whole.sequences.table.clone()
    table[:, : len(prefix)] = prefix
    sequences = Sequences(table, whole.sequences.lengths, whole.sequences.dropped)
    lengths = torch.full_like(sequences.lengths, tail)
    tails = Sequences(table[:, len(prefix) :].contiguous(), lengths, sequences.dropped)
    groups = Groups.of([members], [prefix.tolist()], model.page, bench.device, model.group)
    programs = whole.work.programs
    tile = whole.work.tile
    room = Work.empty(members, model.kv_heads, model.group, model.head_dim, programs, bench.device, tile=tile)
    plan_work(tails, model.page, whole.rule, room)
    pages, query, rule, out = whole.pools[0], whole.query, whole.rule, whole.out
    contestants = {
        "cascade": Contestant((lambda: cascade_decode(query, pages, groups, tails, rule, room, out=out),)),
        "each by itself": Contestant((lambda: paged_decode(query, pages, sequences, rule, whole.work, out=out),)),
    }
    times = bench.compare("cascade", contestants)
    name = f"decode, {members} x {shared + tail} with {shared} in common, cascade over each by itself"
    return [ratio_row(name, ratios(times["each by itself"], times["cascade"]))]
