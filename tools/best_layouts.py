#!/usr/bin/env python3
"""Compares the layouts that `trifold plan --search` finds with those that published runs used.

    tools/best_layouts.py build/release/launch/trifold [--case TEXT] [--goals]

Each row of tests/golden/best_configurations.csv names a run of tests/golden/published_runs.csv. The search gets its
model, devices, global batch and program (as tools/published_rows.py describes them), and may use the features of that
program: none had zero-bubble schedules; Megatron-LM sharded the optimizer's state at most, and had no sequence
parallelism until 2022; DeepSpeed's pipeline had neither; torchtitan_spaces says what torchtitan had. Memory is that of
the program. Programs that kept the scores of attention recompute as they were published. Runs with context-parallel
ranks, which are not searched for other programs, are left out. Printed for each case: layouts examined, those that fit, the
seconds taken, the rank of the published mesh (tp, pp, dp) among the meshes found, each by its best layout, and the
regret: how much longer the published layout is forecast to take than the best one found, both in closed form and with
layers cut by cost.

A run of kind `tuned` was the best of several measured by its authors or vendors; one of kind `chosen` was chosen by a
rule or without a search. The last lines count: tuned meshes among the five best, and regrets of at most 10 %. Then the
BLOOM team's measured meshes on 384 devices: how much slower the one with the least forecast was than the fastest.

--goals: exit status 1 unless 90 % of the tuned meshes are among the five best, 95 % of the regrets at most 10 % and
BLOOM's first choice within 3 %. All cases take minutes.
"""

import argparse
import csv
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict, namedtuple
from pathlib import Path

import published_rows as published

GOLDEN = Path(__file__).resolve().parent.parent / "tests/golden"


def read_rows(name):
    with open(GOLDEN / name, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def mesh_of(row):
    """(tensor, pipeline, data): context ranks are an assumption about the program, not a choice."""
    return published.whole(row, "tp"), published.whole(row, "pp"), published.whole(row, "dp", 1)


# A part of the space to search: the axes to choose, options of everything else, and what recomputed layers keep (None:
# as the run did). `pipelines`: layouts without a pipeline do not belong to it.
Space = namedtuple("Space", "axes given recomputed pipelines", defaults=(None, False))


def torchtitan_spaces(row):
    """torchtitan shards weights, in pipelines gathers them once a step, and accumulated no gradients without a pipeline
    before June 2025. It recomputes nothing, every second product or layer, or all."""
    ranks = mesh_of(row)[0] * mesh_of(row)[1] * mesh_of(row)[2]
    batch = published.batch_of(row)[1]
    spaces = []
    for granularity, recomputed in (("none", {}), ("full", published.HALF_OF_PRODUCTS),
                                    ("full", published.HALF_OF_LAYERS), ("full", {})):
        recompute = ["--recompute-granularity", granularity]
        for tensor in (1, 2, 4, 8):
            if batch * tensor % ranks == 0:
                spaces.append(Space(["sequence-parallel"], [
                    *recompute, "--tensor-model-parallel-size", str(tensor), "--micro-batch-size",
                    str(batch * tensor // ranks), "--zero-stage", "3", "--zero-reduce", "each"], recomputed))
        spaces.append(Space(["tensor", "pipeline", "schedule", "stages", "micro-batch", "sequence-parallel"],
                            [*recompute, "--zero-stage", "2"], recomputed, True))
    return spaces


def spaces_of(row):
    """Settings that a run's program left to its users, and the options of the rest, as published; more than one such
    space where settings depend on each other."""
    software = published.software_of(row)[0]
    layout = published.mesh_options(row, mesh_of(row)[2])
    axes = ["tensor", "pipeline", "schedule", "stages", "micro-batch"]
    given = []
    source = published.source_of(row)
    if "torchtitan" in source:
        return torchtitan_spaces(row)

    def leave(option, values):
        if option in layout:
            at = layout.index(option)
            given.extend(map(str, layout[at:at + 1 + values]))

    if "scatter-messages" in software or "nemo" in source:  # Megatron-LM's and DeepSpeed's pipelines
        leave("--zero-stage", 1)
    else:
        axes.append("zero")
    if "scatter-messages" in software and "backward-overlap" not in software:
        leave("--sequence-parallel", 0)
    else:
        axes.append("sequence-parallel")
    if software.get("attention") == "unfused":
        given += published.recompute_options(row)
    else:
        axes.append("recompute")
    return [Space(axes, given)]


def search_space(program, row, space):
    """The JSON of the search, or a text that says why there is none."""
    _, batch, _ = published.batch_of(row)
    tensor, pipeline, data = mesh_of(row)
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [program, "plan", *published.job_options(row, space.recomputed), "--ranks",
                   str(tensor * pipeline * data), "--global-batch-size", str(batch), "--search", "--json", file.name,
                   "--search-over", ",".join(space.axes), *space.given]
        if "schedule" in space.axes:
            command += ["--search-schedules", "1f1b,interleaved"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            if not re.search("no layout of .* can run|none of .* layouts fits", done.stderr):
                sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
            return done.stderr.strip()
        found = json.load(open(file.name, encoding="utf-8"))
    for list_ in ("meshes", "layouts") if space.pipelines else ():
        found[list_] = [one for one in found[list_] if one["pipeline_model_parallel_size"] > 1]
    return found


def search(program, row):
    """The same for all spaces of the program together: each mesh at its fastest, and the layouts in order."""
    answers = [search_space(program, row, space) for space in spaces_of(row)]
    found = [answer for answer in answers if not isinstance(answer, str) and answer["layouts"]]
    if not found:
        return answers[0]
    meshes = {}
    for mesh in sorted((mesh for one in found for mesh in one["meshes"]), key=lambda mesh: mesh["closed_form_seconds"]):
        meshes.setdefault(mesh_of_json(mesh), mesh)
    if len(found) > 1:
        found[0]["meshes"] = list(meshes.values())
        found[0]["layouts"] = sorted((layout for one in found for layout in one["layouts"]),
                                     key=lambda layout: layout["step_seconds"])
    return found[0] | {"candidates": sum(one["candidates"] for one in found),
                       "fitting": sum(one["fitting"] for one in found)}


def without_cut(options):
    """The search cuts layers by cost."""
    kept = [word for word in options if not word.startswith("--account-for")]
    if "--pipeline-cut" in kept:
        at = kept.index("--pipeline-cut")
        del kept[at:at + 2]
    return kept


def closed_forms(program, lines):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("".join(" ".join(line) + "\n" for line in lines))
        file.flush()
        done = subprocess.run([program, "plan", "--lines", file.name, "--closed-form"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def mesh_of_json(mesh):
    return mesh["tensor_model_parallel_size"], mesh["pipeline_model_parallel_size"], mesh["data_parallel_size"]


def place_of(row, found):
    """The place of the published mesh, counted from 1; None where nothing of it fits."""
    meshes = [mesh_of_json(mesh) for mesh in found["meshes"]]
    mesh = mesh_of(row)
    return meshes.index(mesh) + 1 if mesh in meshes else None


def compare_cases(program, cases):
    """[(kind, place, regret)]; None for what could not be found."""
    results = []
    forecasts = closed_forms(program, [without_cut(published.options_of(row)) for _, row in cases])
    print(f"{'run':40} {'layouts':>8} {'fit':>7} {'took':>7} {'place':>9} {'regret':>9}  best found")
    for (kind, row), forecast in zip(cases, forecasts, strict=True):
        begin = time.monotonic()
        found = search(program, row)
        took = time.monotonic() - begin
        if isinstance(found, str):
            print(f"{row['row_id']:40} {found}")
            results.append((kind, None, None))
            continue
        place = place_of(row, found)
        best = min(mesh["closed_form_seconds"] for mesh in found["meshes"])
        regret = 100 * (forecast["step_seconds"] / best - 1) if "error" not in forecast else None
        shown = f"{regret:+7.1f} %" if regret is not None else "refused"
        print(f"{row['row_id']:40} {found['candidates']:8} {found['fitting']:7} {took:5.1f} s "
              f"{place or 'none':>4}/{len(found['meshes']):<4} {shown:>9}  {' '.join(found['layouts'][0]['options'])}")
        results.append((kind, place, regret))
    return results


def compare_bloom(program, rows):
    """How much slower, in percent, the mesh with the least forecast was than the fastest, of the largest sweep."""
    sweeps = defaultdict(list)
    for row in rows:
        if "bloom" in row["row_id"] and row["gpus"] == "384" and published.plannable(row):
            sweeps[published.same_job(row)].append(row)
    sweep = max(sweeps.values(), key=len)
    forecasts = closed_forms(program, [published.options_of(row) for row in sweep])
    pairs = [(forecast["step_seconds"], published.measured_seconds(row))
             for row, forecast in zip(sweep, forecasts, strict=True) if "error" not in forecast]
    chosen = min(pairs)[1]
    return len(pairs), 100 * (chosen / min(measured for _, measured in pairs) - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--case", default="", help="only runs whose row_id contains this")
    parser.add_argument("--goals", action="store_true")
    arguments = parser.parse_args()

    rows = read_rows("published_runs.csv")
    by_id = {row["row_id"]: row for row in rows}
    cases = [(case["kind"], by_id[case["row_id"]]) for case in read_rows("best_configurations.csv")
             if arguments.case in case["row_id"] and published.whole(by_id[case["row_id"]], "cp", 1) == 1]
    results = compare_cases(arguments.program, cases)
    tuned = [place is not None and place <= 5 for kind, place, _ in results if kind == "tuned"]
    small = [regret is not None and regret <= 10 for _, _, regret in results]
    print(f"tuned meshes among the five best: {sum(tuned)} of {len(tuned)}")
    print(f"regret of at most 10 %: {sum(small)} of {len(small)}")
    meshes, slower = compare_bloom(arguments.program, rows)
    print(f"first choice of BLOOM's {meshes} meshes on 384 devices: {slower:+.1f} % of the fastest as measured")
    reached = sum(tuned) >= 0.9 * len(tuned) and sum(small) >= 0.95 * len(small) and slower <= 3
    return 1 if arguments.goals and not reached else 0


if __name__ == "__main__":
    sys.exit(main())
