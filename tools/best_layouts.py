#!/usr/bin/env python3
"""Compares the layouts that `trifold plan --search` finds with those that published runs used.

    tools/best_layouts.py build/release/launch/trifold [--case TEXT] [--goals] [--rows FILE.csv --cases FILE.csv]

Each row of tests/golden/best_configurations.csv names a run of tests/golden/published_runs.csv; --cases and --rows name
other tables. The search gets the model, devices, global batch and program of a run (as tools/published_rows.py
describes them), and may use the features of that program: none had zero-bubble schedules; pipelines_of says how each
could cut and interleave its stages; Megatron-LM sharded the optimizer's state at most, and had no sequence parallelism
until 2022; DeepSpeed's pipeline had neither; torchtitan_spaces says what torchtitan had. Memory is that of
the program. Programs that kept the scores of attention recompute as they were published. Runs with context-parallel
ranks, which are not searched for other programs, are left out. Printed for each case: layouts examined, those that fit, the
seconds taken, the rank of the published mesh (tp, pp, dp) among the meshes found, each by its best layout, and the
regret: how much longer the published layout is forecast to take than the best one found, both in closed form and cut as
the program can.

A run of kind `tuned` was the best of several measured by its authors or vendors; one of kind `chosen` was chosen by a
rule or without a search. The last lines count: tuned meshes among the five best, and regrets of at most 10 %. Then the
BLOOM team's measured meshes on 384 devices: how much slower the one with the least forecast was than the fastest.

--goals: exit status 1 unless 90 % of the tuned meshes are among the five best, 95 % of the regrets at most 10 % and
BLOOM's first choice within 3 %. All cases take a minute.
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


def read_rows(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def kind_of(case):
    """`tuned`, `chosen`, or None for a case of neither kind. Tables without this column have the test of each case."""
    if "kind" in case:
        return case["kind"]
    return "tuned" if "among the 5 best" in case["test"] else "chosen" if "regret" in case["test"] else None


def mesh_of(row):
    """(tensor, pipeline, data): context ranks are an assumption about the program, not a choice."""
    return published.whole(row, "tp"), published.whole(row, "pp"), published.whole(row, "dp", 1)


# A part of the space to search: the axes to choose, options of everything else, what recomputed layers keep (None: as
# the run did), the schedules, and the pipeline ranks of the meshes that belong to it: how many at least, and whether
# they must divide the layers.
Space = namedtuple("Space", "axes given recomputed schedules fewest equal", defaults=(None, (), 1, False))

# What a program's pipelines can do: whether all stages have as many layers, and from how many ranks on they interleave
# (None: never).
Pipelines = namedtuple("Pipelines", "equal interleaves_from")


def pipelines_of(row):
    """Megatron-LM had equal stages, and until the end of 2023 interleaved those of three ranks or more
    (megatron/arguments.py: "pipeline-model-parallel size should be greater than 2 with interleaved schedule"; the commit
    of MegaScale's baseline, 285068c8, has both checks); from 2025 on the embedding and the head may count as layers.
    DeepSpeed's pipeline (runtime/pipe/schedule.py) interleaves nothing, and cuts by parameters or kinds of layers.
    torchtitan's splits are given layer by layer, and Llama 3's ends have a layer less."""
    source = published.source_of(row)
    if "torchtitan" in source or "llama3" in source or "Megatron-Bridge" in row["source"]:
        return Pipelines(False, 2)
    if "nemo" in source or "340B" in row["model"]:
        return Pipelines(True, 2)
    if published.runs_on_deepspeed_pipelines(row):
        return Pipelines(False, None)
    return Pipelines(True, 3)


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
                            [*recompute, "--zero-stage", "2"], recomputed, ("1f1b", "interleaved"), 2))
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
    pipelines = pipelines_of(row)
    if pipelines.equal:
        given += ["--pipeline-cut", "even"]
    spaces = [Space(axes, given, None, ("1f1b",), 1, pipelines.equal)]
    if pipelines.interleaves_from:
        spaces.append(Space(axes, given, None, ("interleaved",), pipelines.interleaves_from, pipelines.equal))
    return spaces


def search_space(program, row, space):
    """The JSON of the search, or a text that says why there is none."""
    _, batch, _ = published.batch_of(row)
    tensor, pipeline, data = mesh_of(row)
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [program, "plan", *published.job_options(row, space.recomputed), "--ranks",
                   str(tensor * pipeline * data), "--global-batch-size", str(batch), "--search", "--json", file.name,
                   "--search-over", ",".join(space.axes), *space.given]
        if space.schedules:
            command += ["--search-schedules", ",".join(space.schedules)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            if not re.search("no layout of .* can run|none of .* layouts fits", done.stderr):
                sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
            return done.stderr.strip()
        found = json.load(open(file.name, encoding="utf-8"))
    layers = published.whole(row, "layers")
    found["meshes"] = [mesh for mesh in found["meshes"] if mesh["pipeline_model_parallel_size"] >= space.fewest and
                       not (space.equal and layers % mesh["pipeline_model_parallel_size"])]
    return found


def search(program, row):
    """The same for all spaces of the program together: each mesh at its fastest."""
    answers = [search_space(program, row, space) for space in spaces_of(row)]
    found = [answer for answer in answers if not isinstance(answer, str) and answer["meshes"]]
    if not found:
        return next((answer for answer in answers if isinstance(answer, str)), "no layout of the program was found")
    meshes = {}
    for mesh in sorted((mesh for one in found for mesh in one["meshes"]), key=lambda mesh: mesh["closed_form_seconds"]):
        meshes.setdefault(mesh_of_json(mesh), mesh)
    return {"meshes": list(meshes.values()), "candidates": sum(one["candidates"] for one in found),
            "fitting": sum(one["fitting"] for one in found)}


def text_of(mesh):
    """The best layout of a mesh."""
    tensor, pipeline, data = mesh_of_json(mesh)
    words = [f"tp {tensor}{' sp' if mesh['sequence_parallel'] else ''}, pp {pipeline}, dp {data}, ",
             f"micro-batch {mesh['micro_batch_size']}"]
    if pipeline > 1:
        words.append(f", {mesh['schedule']} x {mesh['stages_per_rank']}")
    return "".join(words + [f", recompute {mesh['recompute_granularity']}, ZeRO {mesh['zero_stage']}"])


def without_cut(options):
    """As a search cuts layers where the program leaves it to its users: by cost."""
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
    options = [published.options_of(row) for _, row in cases]
    forecasts = closed_forms(program, [words if pipelines_of(row).equal else without_cut(words)
                                       for (_, row), words in zip(cases, options, strict=True)])
    # Stages of the embedding or the head alone have to be asked for.
    forecasts = [as_published if "error" in forecast else forecast
                 for forecast, as_published in zip(forecasts, closed_forms(program, options), strict=True)]
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
        best = found["meshes"][0]["closed_form_seconds"]
        regret = 100 * (forecast["step_seconds"] / best - 1) if "error" not in forecast else None
        shown = f"{regret:+7.1f} %" if regret is not None else "refused"
        print(f"{row['row_id']:40} {found['candidates']:8} {found['fitting']:7} {took:5.1f} s "
              f"{place or 'none':>4}/{len(found['meshes']):<4} {shown:>9}  {text_of(found['meshes'][0])}")
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
    parser.add_argument("--rows", default=GOLDEN / "published_runs.csv")
    parser.add_argument("--cases", default=GOLDEN / "best_configurations.csv")
    arguments = parser.parse_args()

    rows = read_rows(arguments.rows)
    by_id = {row["row_id"]: row for row in rows}
    cases = [(kind_of(case), by_id[case["row_id"]]) for case in read_rows(arguments.cases)
             if arguments.case in case["row_id"] and kind_of(case)]
    cases = [(kind, row) for kind, row in cases if published.whole(row, "cp", 1) == 1 and published.plannable(row)]
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
