#!/usr/bin/env python3
"""Records the results of about eighty short runs, to show that a change to the code did not affect them.

  same_bits.py record PROGRAM RECORD.json [PATTERN]   runs all, or those whose names contain PATTERN
  same_bits.py compare BEFORE.json AFTER.json         lists the differences; status 1 if there are any

The record of a run holds each loss, gradient norm and learning rate to the last bit, the checksum of each tensor of its
last checkpoint (of weights and optimizer state, whatever the mesh that wrote them), and its exit status. The record of a
plan or of --print-config is its text. Kernels differ between processors, so both records must come from one machine.
"""

import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

TEXT = pathlib.Path(__file__).resolve().parent.parent / "data" / "tinyshakespeare.txt"
CONFIGS = pathlib.Path(__file__).resolve().parent.parent / "launch" / "configs"
# Values of a log line that differ from one run of a program to the next.
MEASURED = ("seconds", "per_second", "mfu", "resident_bytes")

SMALL = {"--num-layers": 4, "--hidden-size": 32, "--num-attention-heads": 4, "--seq-length": 32, "--micro-batch-size": 2,
         "--global-batch-size": 16, "--lr": "1e-3", "--split": "90,10,0", "--threads-per-rank": 1, "--train-iters": 5}
FAMILIES = {
    "gpt": [],
    "llama": ["--swiglu", "--normalization", "RMSNorm", "--position-embedding-type", "rope", "--group-query-attention",
              "--num-query-groups", 2, "--disable-bias-linear", "--untie-embeddings-and-output-weights"],
    "bert": ["--model-type", "bert"],
}
MESHES = {
    "one": [],
    "dp2": ["--dp", 2],
    "tp2": ["--tp", 2],
    "tp2_sequence": ["--tp", 2, "--sequence-parallel"],
    "pp2_gpipe": ["--pp", 2, "--schedule", "gpipe"],
    "pp2_1f1b": ["--pp", 2, "--schedule", "1f1b"],
    "all": ["--tp", 2, "--pp", 2, "--dp", 2, "--zero-stage", 1],
    "zero2": ["--dp", 4, "--zero-stage", 2],
    "zero3": ["--dp", 2, "--pp", 2, "--zero-stage", 3],
}
# More runs of GPT than of the other families.
VARIANTS = {
    "interleaved": ["--pp", 2, "--schedule", "interleaved", "--num-virtual-stages-per-pipeline-rank", 2],
    "zb_h1": ["--pp", 2, "--schedule", "zb-h1"],
    "zb_h2": ["--pp", 2, "--schedule", "zb-h2"],
    "zb_v": ["--pp", 2, "--schedule", "zb-v"],
    "dualpipe_v": ["--pp", 2, "--schedule", "dualpipe-v"],
    "auto": ["--pp", 2, "--schedule", "auto"],
    "pipedream": ["--pp", 2, "--schedule", "pipedream", "--async-window", 2, "--clip-grad", 0],
    "bf16": ["--bf16", "--dp", 2, "--zero-stage", 1],
    "bf16_reduce": ["--bf16", "--grad-reduce-in-bf16", "--dp", 2],
    "fp16": ["--fp16", "--tp", 2],
    "f64": ["--f64", "--tp", 2, "--pp", 2],
    "lamb": ["--optimizer", "lamb", "--dp", 2, "--zero-stage", 1],
    "lars": ["--optimizer", "lars", "--dp", 2, "--zero-stage", 2],
    "muon": ["--optimizer", "muon", "--dp", 2, "--tp", 2, "--zero-stage", 1, "--lr-mult", "*.bias=2"],
    "moments": ["--exp-avg-dtype", "bf16", "--exp-avg-sq-dtype", "bf16", "--dp", 2, "--zero-stage", 2, "--ema", 0.9],
    "sgd": ["--optimizer", "sgd", "--dp", 2],
    "adagrad": ["--optimizer", "adagrad", "--pp", 2],
    "dropout": ["--hidden-dropout", 0.1, "--attention-dropout", 0.1, "--tp", 2],
    "context": ["--cp", 2, "--hidden-dropout", 0.1, "--attention-dropout", 0.1],
    "context_ring": ["--cp", 4, "--cp-comm-type", "p2p", "--attention-dropout", 0.1],
    "recompute_full": ["--recompute-granularity", "full", "--pp", 2],
    "tiled_mlp": ["--tiled-mlp", 3, "--recompute-granularity", "full", "--pp", 2],
    "head_parts": ["--pipeline-vocab-parts", 8, "--untie-embeddings-and-output-weights", "--pp", 4, "--schedule", "zb-h1"],
    "head_parts_tied": ["--pipeline-vocab-parts", 8, "--pp", 4, "--schedule", "zb-h1"],
    "recompute_selective": ["--recompute-granularity", "selective", "--tp", 2],
    "zero_each": ["--dp", 4, "--zero-stage", 2, "--zero-reduce", "each", "--zero-group-size", 2],
    "evaluated": ["--eval-interval", 2, "--eval-iters", 2, "--dp", 2],
}
# Mixtures of experts.
EXPERTS = ["--num-experts", 4, "--moe-router-topk", 2, "--disable-bias-linear", "--moe-aux-loss-coeff", 0.01, "--moe-z-loss-coeff", 0.001]
EXPERT_VARIANTS = {
    "one": [],
    "tp2_sequence": ["--tp", 2, "--sequence-parallel", "--recompute-granularity", "full"],
    "ep2_pp2": ["--dp", 2, "--ep", 2, "--pp", 2, "--moe-buffer-factor", 0.6],
    "bias": ["--dp", 2, "--moe-router-score-function", "sigmoid", "--moe-router-enable-expert-bias"],
    "last_batch": ["--dp", 2, "--pp", 2, "--moe-router-load-balancing-type", "global_aux_loss", "--moe-layer-freq", 2],
    "capacity": ["--cp", 2, "--moe-expert-capacity-factor", 1.0, "--moe-token-drop-policy", "position"],
}
CLICKS = {"--table-rows": "300-200-50-3", "--table-max-ids": "1-4-1-2", "--synthetic-samples": 6000, "--valid-samples": 1000,
          "--dense-features": 4, "--bottom-mlp": "8-4", "--embedding-dim": 4, "--top-mlp": "8-1", "--global-batch-size": 252,
          "--lr": 0.2, "--embedding-optimizer": "rowwise-adagrad", "--embedding-lr": 0.05, "--threads-per-rank": 1,
          "--train-iters": 8, "--eval-interval": 4}
RECOMMENDERS = {
    "one": [],
    **{kind: ["--ranks", 3, "--placement", kind] for kind in ("table", "row", "column", "replicated", "auto")},
    "mixed": ["--ranks", 2, "--placement", "table,row,column,replicated"],
    "adam": ["--ranks", 2, "--placement", "row", "--embedding-optimizer", "adam", "--optimizer", "adam", "--lr", "0.01"],
    "adagrad": ["--ranks", 2, "--placement", "table", "--embedding-optimizer", "adagrad", "--optimizer", "adagrad"],
    "sgd": ["--embedding-optimizer", "sgd"],
    "cross": ["--ranks", 2, "--interaction", "cross", "--cross-layers", 2, "--cross-rank", 3],
    "deepfm": ["--ranks", 2, "--interaction", "fm", "--wide"],
    "wide_deep": ["--interaction", "cat", "--wide"],
    "labels": ["--ranks", 2, "--synthetic-labels", 3],
    "mmoe": ["--synthetic-labels", 2, "--multi-task", "mmoe"],
    "f64": ["--ranks", 2, "--f64"],
    "bf16_exchange": ["--ranks", 2, "--bf16-exchange"],
}
PLANS = ["gpt-7.5b", "gpt-175b", "llama-8b", "bert-large-phase1"]


def ranks_of(options):
    count = 1
    for option, value in zip(options, options[1:]):
        if option in ("--tp", "--cp", "--pp", "--dp"):
            count *= int(value)
    return count


def options_with(base, more):
    """`base` with `more`, whose options replace those of `base`."""
    kept = [word for option, value in base.items() if option not in more for word in (option, value)]
    return [*kept, *more]


def pretrain(more, save="d"):
    return ["pretrain", *options_with(SMALL, more), "--data-path", TEXT, "--ranks", ranks_of(more), "--save", save,
            "--log-interval", 1, "--log-json", "log.jsonl"]


def recommend(more, save="d"):
    return ["recommend", *options_with(CLICKS, more), "--save", save, "--log-interval", 1, "--log-json", "log.jsonl"]


def write_labels(folder):
    generator = random.Random(3)
    lines = ["label\ttext\ttext_b"]
    for _ in range(80):
        label = generator.choice(("plus", "star"))
        lines.append(f"{label}\t{generator.choice('abc')} {'+' if label == 'plus' else '*'}\t{generator.choice('xyz')}")
    (folder / "train.tsv").write_text("\n".join(lines) + "\n")


def all_runs():
    """Name: the commands of a run, one after the other in one folder."""
    runs = {}
    for family, options in FAMILIES.items():
        for mesh, more in MESHES.items():
            runs[f"{family}.{mesh}"] = [pretrain([*options, *more])]
    for name, more in VARIANTS.items():
        runs[f"gpt.{name}"] = [pretrain(more)]
    for name, more in EXPERT_VARIANTS.items():
        runs[f"experts.{name}"] = [pretrain([*EXPERTS, *more])]
    last_batch = [*EXPERTS, *EXPERT_VARIANTS["last_batch"]]
    runs["experts.resumed"] = [pretrain([*last_batch, "--exit-interval", 3]), [*pretrain(last_batch), "--load", "d"]]
    runs["gpt.resumed_elsewhere"] = [pretrain(["--dp", 2, "--zero-stage", 1, "--exit-interval", 2]),
                                     [*pretrain(["--tp", 2, "--pp", 2]), "--load", "d"]]
    runs["gpt.resumed"] = [pretrain(["--exit-interval", 3]), [*pretrain(["--async-save"]), "--auto-resume"]]
    runs["bert.finetuned"] = [
        pretrain([*FAMILIES["bert"], "--max-position-embeddings", 64]),
        ["finetune", "--task", "classify", "--load", "d", "--train-data", "train.tsv", "--micro-batch-size", 4,
         "--global-batch-size", 8, "--lr", "1e-3", "--train-iters", 6, "--threads-per-rank", 1, "--save", "tuned",
         "--log-interval", 1, "--log-json", "log.jsonl"]]
    for name, more in RECOMMENDERS.items():
        runs[f"dlrm.{name}"] = [recommend(more)]
    runs["dlrm.resumed_elsewhere"] = [recommend(["--ranks", 2, "--train-iters", 4, "--placement", "row"]),
                                      [*recommend(["--ranks", 3, "--placement", "column"]), "--load", "d"]]
    for config in PLANS:
        runs[f"plan.{config}"] = [["plan", "--config", CONFIGS / f"{config}.cfg"]]
    runs["plan.dlrm"] = [["plan-recommender", "--config", CONFIGS / "dlrm-kaggle.cfg", "--ranks", 4]]
    runs["config.pretrain"] = [[*pretrain(MESHES["all"]), "--print-config"]]
    runs["config.recommend"] = [[*recommend(RECOMMENDERS["mixed"]), "--print-config"]]
    return runs


def tensors_of(program, folder):
    """Name: type, shape and checksum of each tensor of the newest checkpoint of the last folder that was saved in."""
    saves = [name for name in ("tuned", "d") if (folder / name).exists()]
    if not saves:
        return {}
    source = saves[0]
    done = subprocess.run([program, "reshard", "--load", source, "--save", "whole"], cwd=folder, capture_output=True, check=False)
    if done.returncode == 0:  # one rank writes each tensor in one piece
        source = "whole"
    manifest = max((folder / source).glob("step_*/manifest.json"))
    return {tensor["name"]: [tensor["dtype"], tensor["shape"], sorted([piece["offset"], piece["crc32"]] for piece in tensor["pieces"])]
            for tensor in json.loads(manifest.read_text())["tensors"]}


def logged(folder):
    path = folder / "log.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [{key: value.hex() if isinstance(value, float) else value for key, value in line.items()
             if not any(word in key for word in MEASURED)} for line in lines if "event" not in line]


def record(program, commands):
    with tempfile.TemporaryDirectory(prefix="trifold_bits_") as scratch:
        folder = pathlib.Path(scratch)
        write_labels(folder)
        result = {"status": [], "text": []}
        for command in commands:
            done = subprocess.run([program, *map(str, command)], cwd=folder, capture_output=True, text=True, errors="replace", check=False)
            result["status"].append(done.returncode)
            if done.returncode != 0:
                result["text"].append(done.stderr)
            elif command[0].startswith("plan") or "--print-config" in command:
                # Paths and measured rates depend on where and when it runs.
                text = re.sub(r"\S*/(\S+)", r"\1", done.stdout)
                result["text"].append("\n".join(line for line in text.splitlines() if "measured" not in line))
        result["log"] = logged(folder)
        result["tensors"] = tensors_of(program, folder)
    return result


def differences(before, after):
    found = []
    for name in sorted(before.keys() | after.keys()):
        a, b = before.get(name), after.get(name)
        if a is None or b is None:
            found.append(f"{name}: only in the {'second' if a is None else 'first'} record")
            continue
        found += [f"{name}: other {part}" for part in ("status", "text") if a[part] != b[part]]
        steps = [i for i, (x, y) in enumerate(zip(a["log"], b["log"])) if x != y]
        if steps or len(a["log"]) != len(b["log"]):
            found.append(f"{name}: the log differs from line {steps[0] + 1 if steps else min(len(a['log']), len(b['log'])) + 1} on")
        names = [t for t in sorted(a["tensors"].keys() | b["tensors"].keys()) if a["tensors"].get(t) != b["tensors"].get(t)]
        if names:
            found.append(f"{name}: {len(names)} tensors differ, the first is {names[0]}")
    return found


def main(arguments):
    if len(arguments) in (3, 4) and arguments[0] == "record":
        program, pattern = os.path.abspath(arguments[1]), arguments[3] if len(arguments) == 4 else ""
        records = {}
        for name, commands in all_runs().items():
            if pattern in name:
                records[name] = record(program, commands)
                print(name, "ok" if not any(records[name]["status"]) else f"status {records[name]['status']}", flush=True)
        pathlib.Path(arguments[2]).write_text(json.dumps(records, indent=1, sort_keys=True))
        return 0
    if len(arguments) == 3 and arguments[0] == "compare":
        before, after = (json.loads(pathlib.Path(name).read_text()) for name in arguments[1:])
        found = differences(before, after)
        print("\n".join(found) if found else f"{len(before)} runs, no difference")
        return 1 if found else 0
    print(__doc__.strip(), file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
