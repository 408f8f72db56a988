#!/usr/bin/env python3
"""Compares the planner's step times with published training runs.

    tools/published_runs.py build/release/launch/trifold [--rows FILE.csv] [--source TEXT] [--simulate]
                            [--most PERCENT] [--rows-out FILE.csv] [--show] [--memory]

Each row of the table (default: tests/golden/published_runs.csv) becomes the options of one `trifold plan`; all of
them run in one process (`--lines`). Printed for each source: rows, rows planned, the mean absolute error of the
step's time, and how many pairs of rows the forecast puts into the right order: pairs that train a model of the same size on
as many devices in another way and were measured to differ by more than 5 %. The last line averages over the sources.

The last column counts how often the forecast is right about whether a run fits in the memory of its devices: all rows
ran but those whose notes say OOM. Bytes are what the program needs, as `--assume` describes it. Not counted are runs
with context-parallel ranks, which are planned as an assumption about their program, and those whose recomputation is
not known. --memory also compares the bytes with the memory that was reported of some runs.

The default forecasts in closed form, and estimates bytes. --simulate runs every plan through the simulator instead (minutes).
--most P: exit status 1 when the average over the sources is above P percent or under 98 % of the rows are planned.
tools/published_rows.py turns a row into options.
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from itertools import combinations
from pathlib import Path

from published_rows import (described, measured_seconds, number, options_of, plannable, ran, same_job, source_of,
                            whole)

HERE = Path(__file__).resolve().parent


def forecasts(program, rows, simulate):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as lines:
        for row in rows:
            lines.write(" ".join(options_of(row)) + "\n")
        lines.flush()
        command = [program, "plan", "--lines", lines.name] + ([] if simulate else ["--closed-form"])
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def count_pairs(results):
    """(right, all) over pairs of the same job that were measured more than 5 % apart."""
    right = pairs = 0
    for (a, planned_a, measured_a), (b, planned_b, measured_b) in combinations(results, 2):
        if same_job(a) != same_job(b) or options_of(a) == options_of(b):
            continue
        if max(measured_a, measured_b) < 1.05 * min(measured_a, measured_b):
            continue
        pairs += 1
        right += (planned_a < planned_b) == (measured_a < measured_b)
    return right, pairs


def compare_memory(rows, answers, show):
    """Bytes of the rank that needs most, against the most that was reported of a run."""
    results = defaultdict(list)
    for row, answer in zip(rows, answers, strict=True):
        reported = number(row.get("memory_gib") or "")
        if reported is None or "bytes" not in answer or not row["recompute"] or whole(row, "cp", 1) > 1:
            continue
        planned = answer["bytes"] / 2**30
        results[source_of(row)].append(planned / reported)
        if show:
            print(f"{row['row_id']:40} {reported:8.1f} GiB reported, {planned:8.1f} planned "
                  f"{100 * (planned / reported - 1):+7.1f} %")
    print(f"{'source':36} {'rows':>5} {'planned over reported memory: mean, least, most':>48} {'error':>8}")
    for source, ratios in results.items():
        mean = sum(ratios) / len(ratios)
        error = sum(abs(ratio - 1) for ratio in ratios) / len(ratios)
        print(f"{source:36} {len(ratios):5} {f'{mean:.2f}, {min(ratios):.2f}, {max(ratios):.2f}':>48} {100 * error:6.1f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--rows", default=HERE.parent / "tests/golden/published_runs.csv")
    parser.add_argument("--source", default="", help="only sources whose name contains this")
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--most", type=float)
    parser.add_argument("--rows-out", help="write every row's forecast to this file")
    parser.add_argument("--memory", action="store_true", help="compare memory with what was reported, too")
    parser.add_argument("--show", action="store_true", help="print every row's forecast")
    arguments = parser.parse_args()

    with open(arguments.rows, encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if arguments.source in row["row_id"] and described(row)]
    rows = [row for row in rows if plannable(row) or not ran(row)]
    answers = forecasts(arguments.program, rows, arguments.simulate)
    if arguments.memory:
        compare_memory(rows, answers, arguments.show)
    fitting = defaultdict(list)
    for row, answer in zip(rows, answers, strict=True):
        if "fits" not in answer or whole(row, "cp", 1) > 1 or not row["recompute"]:
            continue
        fitting[source_of(row)].append(answer["fits"] == ran(row))
        if arguments.show and not fitting[source_of(row)][-1]:
            print(f"{row['row_id']:40} {answer['bytes'] / 2**30:.1f} GiB, and it {'ran' if ran(row) else 'did not fit'}")
    answers = [answer for row, answer in zip(rows, answers, strict=True) if ran(row)]
    rows = [row for row in rows if ran(row)]
    results, planned, refused = defaultdict(list), defaultdict(int), []
    for row, answer in zip(rows, answers, strict=True):
        planned[source_of(row)] += 1
        if "error" in answer:
            refused.append((row["row_id"], answer["error"]))
        else:
            results[source_of(row)].append((row, answer["step_seconds"], measured_seconds(row)))
            if arguments.show:
                seconds = answer["step_seconds"]
                print(f"{row['row_id']:40} {measured_seconds(row):10.3f} {seconds:10.3f} "
                      f"{100 * (seconds / measured_seconds(row) - 1):+7.1f} %  " +
                      " ".join(f"{key}={value:.4g}" for key, value in answer.get("parts", {}).items()))
    for name, error in refused:
        print(f"refused: {name}: {error}")

    print(f"{'source':36} {'rows':>5} {'planned':>8} {'error':>8} {'pairs':>10} {'fits':>8}")
    errors, right, pairs = [], 0, 0
    for source in planned:
        each = [abs(seconds / measured - 1) for _, seconds, measured in results[source]]
        good, all_pairs = count_pairs(results[source])
        right, pairs = right + good, pairs + all_pairs
        errors.append(sum(each) / len(each) if each else 1)
        print(f"{source:36} {planned[source]:5} {len(each):8} {100 * errors[-1]:6.1f} % {f'{good}/{all_pairs}':>10} "
              f"{sum(fitting[source]):4}/{len(fitting[source])}")
    average = 100 * sum(errors) / len(errors)
    share = 100 * (len(rows) - len(refused)) / len(rows)
    verdicts = [right_one for each in fitting.values() for right_one in each]
    print(f"{'average of sources':36} {len(rows):5} {share:6.1f} % {average:6.1f} % {f'{right}/{pairs}':>10} "
          f"{sum(verdicts):4}/{len(verdicts)}")
    if arguments.most is not None and (average > arguments.most or share < 98):
        print(f"the average may be at most {arguments.most} %, and 98 % of the rows have to be planned")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
