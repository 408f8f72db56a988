#!/usr/bin/env python3
"""Writes docs/families.md: what Trifold does with each family of Hugging Face's models, tried with a small random model.

usage: families_page.py PROGRAM [--check PAGE]

Prints the page; with --check compares it with PAGE instead, and fails where they differ. The models are the folders
tests/golden/hf_<model_type>, whose odd sizes leave nothing to chance."""

import argparse
import collections
import difflib
import json
import pathlib
import re
import shlex
import struct
import subprocess
import sys
import tempfile

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "tests" / "golden"
STEPS, SEQUENCE, TOLERANCE = 3, "12", 1e-6
MESHES = {"tp": ["--sequence-parallel"], "pp": ["--ranks", 2, "--pp", 2], "cp": ["--ranks", 2, "--cp", 2],
          "ep": ["--ranks", 2, "--ep", 2]}
# Options with sizes that tensor ranks divide.
DIVIDED = ("--num-attention-heads", "--num-query-groups", "--ffn-hidden-size", "--moe-ffn-hidden-size")
COLUMNS = ["import", "export", "train", *MESHES, "fp8", "CUDA"]
EXTENT = "every extent must be a multiple of 16"

INTRODUCTION = f"""\
# Families of models

What Trifold does with the models of Hugging Face's transformers. Each row was tried with a small random model of the family, \
which transformers wrote (`tests/golden/hf_<model_type>`).

| column | yes means |
|---|---|
| import | `trifold convert` reads the folder |
| export | it writes a folder whose tensors are those of the first, bit for bit, and which reads as the same checkpoint |
| train | {STEPS} steps on one rank (with the losses that transformers computes: `tests/parity/families_test.cpp`, `convert_test.cpp`) |
| tp, pp, cp, ep | the losses of these steps on two tensor (with sequence parallelism), pipeline, context or expert ranks are those of one rank, within {TOLERANCE:.0e}; a model with three heads is split over three |
| fp8 | `trifold plan --device cuda --bf16 --fp8` takes the model; extents of products must be multiples of 16 |
| CUDA | `trifold plan --device cuda --bf16` takes the model |

The last two columns are plans: their kernels run in the tests' emulation of a GPU, and no family was trained on a GPU for this page. \
[Checkpoints](checkpoints.md#hugging-face-and-onnx) tells how folders are read and written.
"""


def run(*line):
    return subprocess.run([*map(str, line)], capture_output=True, text=True, check=False)


def problems(done):
    """What a message says, without the name of the program."""
    lines = [re.sub(r"^(trifold: |  - )", "", line) for line in done.stderr.splitlines() if line.strip()]
    return lines[1:] if len(lines) > 1 and re.fullmatch(r"\d+ problems:", lines[0]) else lines


def answer(done, notes, accepted=()):
    """'yes', or 'no' with the number of the note that says why."""
    found = [line for line in problems(done) if not any(text in line for text in accepted)]
    if done.returncode == 0 or (done.returncode == 2 and not found):
        return "yes"
    # Numbers are those of the small model.
    return noted("no", re.sub(r"(--[\w-]+) \d+", r"\1", found[0] if found else f"status {done.returncode}"), notes)


def noted(word, note, notes):
    if note not in notes:
        notes.append(note)
    return f"{word} ({notes.index(note) + 1})"


def tensors_of(folder):
    """The type, shape and bytes of each tensor of a folder. Names are not compared: older folders have others."""
    found = collections.Counter()
    for path in sorted(folder.glob("*.safetensors")):
        if path.name == "gradients.safetensors":
            continue
        data = path.read_bytes()
        size, = struct.unpack("<Q", data[:8])
        for name, entry in json.loads(data[8:8 + size]).items():
            if name != "__metadata__":
                first, last = entry["data_offsets"]
                found[entry["dtype"], tuple(entry["shape"]), data[8 + size + first:8 + size + last]] += 1
    return found


def is_same(program, model, work):
    """Whether the folder that was written holds nothing but tensors of the first, and all that the checkpoint has."""
    again = run(program, "convert", "--load", work / "out", "--save", work / "again")
    return (tensors_of(work / "out") <= tensors_of(model) and again.returncode == 0
            and run(program, "inspect", work / "in", "--diff", work / "again").returncode == 0)


def write_text(folder, vocabulary):
    """A text, and a vocabulary of words that has as many tokens as the model."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(vocabulary - 5))]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    sentences = ["".join(f"w{(7 * i * i + 3 * i + line) % (vocabulary - 5)} " for i in range(9)) for line in range(60)]
    (folder / "text.txt").write_text("".join(f"{line}.\n" + ("\n" if i % 6 == 5 else "") for i, line in enumerate(sentences)))
    return ["--data-path", folder / "text.txt", "--tokenizer-type", "BertWordPieceCase", "--vocab-file", folder / "vocab.txt"]


def ranks_that_divide(described):
    """A number of tensor ranks for the model's sizes; 0 if none is found."""
    sizes = [int(value) for option, value in zip(described, described[1:]) if option in DIVIDED]
    return next((ranks for ranks in (2, 3) if all(size % ranks == 0 for size in sizes)), 0)


def losses_of(log):
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    return [row["loss"] for row in rows if "loss" in row]


def row_of(program, model, work, notes):
    config = json.loads((model / "config.json").read_text())
    cells = dict.fromkeys(COLUMNS, "")
    imported = run(program, "convert", "--load", model, "--save", work / "in")
    cells["import"] = answer(imported, notes)
    if imported.returncode:
        return config, cells
    exported = run(program, "convert", "--load", work / "in", "--save", work / "out")
    cells["export"] = answer(exported, notes)
    if exported.returncode == 0 and not is_same(program, model, work):
        cells["export"] = noted("no", "what was written differs from what was read", notes)
    described = shlex.split(imported.stdout.splitlines()[-1].partition("--finetune")[2])
    described[described.index("--seq-length") + 1] = SEQUENCE
    batch = ["--micro-batch-size", 1, "--global-batch-size", 2]
    steps = [*write_text(work, config["vocab_size"]), "--split", "1,0,0", "--train-iters", STEPS, "--lr", 1e-3,
             "--lr-decay-style", "constant", "--log-interval", 1, "--log-json", work / "log.jsonl", *batch]
    tensor_ranks = ranks_that_divide(described)
    expected = None
    for column, mesh in {"train": [], **MESHES}.items():
        if column == "ep" and "--num-experts" not in described:
            cells[column] = "-"
            continue
        (work / "log.jsonl").unlink(missing_ok=True)
        if column == "tp":
            if not tensor_ranks:
                cells[column] = noted("not tried", "neither two nor three ranks divide the small model's sizes", notes)
                continue
            mesh = [*mesh, "--ranks", tensor_ranks, "--tp", tensor_ranks]
        done = run(program, "pretrain", "--load", work / "in", "--finetune", *described, *steps, *mesh)
        cells[column] = answer(done, notes)
        if done.returncode == 0:
            losses = losses_of(work / "log.jsonl")
            expected = expected or losses
            if len(losses) != STEPS or any(abs(a - b) > TOLERANCE * abs(b) for a, b in zip(losses, expected)):
                cells[column] = noted("no", f"other losses than on one rank: {losses}, {expected}", notes)
    cuda = ["plan", *described, *batch, "--device", "cuda", "--bf16"]
    cells["fp8"] = answer(run(program, *cuda, "--fp8"), notes, [EXTENT])
    cells["CUDA"] = answer(run(program, *cuda), notes)
    return config, cells


def page_of(program):
    notes, rows = [], []
    for model in sorted(GOLDEN.glob("hf_*/config.json")):
        with tempfile.TemporaryDirectory() as work:
            config, cells = row_of(program, model.parent, pathlib.Path(work), notes)
        name = model.parent.name.removeprefix("hf_")  # the family's 'model_type', and of other models what differs
        rows.append(f"| {config['architectures'][0]} | `{name}` | {' | '.join(cells.values())} |")
    lines = [INTRODUCTION, f"| class of transformers | `model_type` | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 2) + "|",
             *rows, "", *(f"{number}. {note}" for number, note in enumerate(notes, 1)), "",
             "`tools/families_page.py` writes this page."]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--check", metavar="PAGE", type=pathlib.Path)
    options = parser.parse_args()
    page = page_of(options.program)
    if not options.check:
        sys.stdout.write(page)
        return 0
    difference = list(difflib.unified_diff(options.check.read_text(encoding="utf-8").splitlines(), page.splitlines(),
                                           str(options.check), "the program", lineterm=""))
    if difference:
        print("\n".join(difference))
        print(f"{options.check} is out of date; write it with: tools/families_page.py PROGRAM > {options.check}", file=sys.stderr)
    return 1 if difference else 0


if __name__ == "__main__":
    sys.exit(main())
