#!/usr/bin/env python3
"""Pipeline schedules as files, written and read by PyTorch (torch.distributed.pipelining).

    python3 tools/reference/torch_schedules.py write tests/golden          # the torch_*.csv files there
    python3 tools/reference/torch_schedules.py read FILE.csv MICROS        # a file of --format torch, by _load_csv
    python3 tools/reference/torch_schedules.py read_comms FILE.csv MICROS  # a file of --format torch-comms

Needs a PyTorch with `_dump_csv`; the golden files are of 2.15.0. No process group is made: schedules are computed from
the numbers of ranks and stages alone. Reading simulates the file, with PyTorch's own communication or that of the file,
and prints how many actions each rank has.
"""

import csv
import sys
import types

from torch.distributed.pipelining import schedules

# Class, ranks, stages of a rank, micro-batches, options. Gathers take turns where few stages are active at a time.
GOLDEN = {
    "looped_bfs": ("ScheduleLoopedBFS", 2, 2, 4, {"max_outstanding_sends": 1}),
    "interleaved_1f1b": ("ScheduleInterleaved1F1B", 2, 2, 4, {"max_active_stages": 1}),
    "interleaved_zero_bubble": ("ScheduleInterleavedZeroBubble", 2, 2, 4, {"defer_reduce_grad_wait": True}),
    "zbv": ("ScheduleZBVZeroBubble", 2, 2, 4, {"defer_pp_recv": True}),
    "dualpipev": ("ScheduleDualPipeV", 2, 2, 4, {}),
}


def make_stages(ranks, per_rank):
    """What a schedule asks of the stages of rank 0."""
    count = ranks * per_rank
    return [
        types.SimpleNamespace(num_stages=count, group_size=ranks, group_rank=0, stage_index=index * ranks,
                              stage_index_to_group_rank=None, has_backward=True, submod=None, is_first=index == 0,
                              is_last=index * ranks == count - 1) for index in range(per_rank)
    ]


def write(folder):
    for name, (kind, ranks, per_rank, micros, options) in GOLDEN.items():
        schedule = getattr(schedules, kind)(make_stages(ranks, per_rank), micros, loss_fn=lambda *_: 0, **options)
        path = f"{folder}/torch_{name}_{ranks}rank_{micros}mb"
        schedule._dump_csv(path + "_comms.csv")
        schedule._dump_csv(path + "_compute.csv", format="compute_only")


def simulate(schedule, stages):
    """Throws where ranks would wait for each other for ever. PyTorch's simulator knows computation and messages alone."""
    rows = {rank: [part for action in row for part in (action.sub_actions or (action,))
                   if part.microbatch_index is not None]
            for rank, row in schedule.pipeline_order_with_comms.items()}
    schedules._simulate_comms_compute(rows, lambda stage: schedule.stage_index_to_group_rank[stage], stages)


def read(path, micros, comms=False):
    with open(path, newline="", encoding="utf-8") as file:
        rows = [[schedules._Action.from_str(cell) for cell in row] for row in csv.reader(file)]
    actions = [part for row in rows for action in row if action for part in (action.sub_actions or (action,))]
    stages = 1 + max(action.stage_index for action in actions)
    schedule = schedules._PipelineScheduleRuntime(make_stages(len(rows), stages // len(rows)), micros,
                                                  loss_fn=lambda *_: 0)
    schedule._load_csv(path, format="compute_comms" if comms else "compute_only")
    simulate(schedule, stages)
    for rank, row in schedule.pipeline_order_with_comms.items():
        print(f"rank {rank}: {len(row)} actions, {row[0]} to {row[-1]}")


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2])
    else:
        read(sys.argv[2], int(sys.argv[3]), comms=sys.argv[1] == "read_comms")
