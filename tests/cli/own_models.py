"""Models that PyTorch exported, with arrays to train them on: for tests of `trifold pretrain --model`."""

import json
import math
import pathlib
import random
import struct

from program import ProgramTest

MODELS = pathlib.Path(__file__).resolve().parents[1] / "data" / "own_models" / "gradients"


def write_npy(path, rows, dims=None):
    """Writes an array whose samples are rows of numbers, each of shape `dims`, a vector if it is not given."""
    dims = [len(rows), *(dims if dims is not None else [len(rows[0])])]
    is_real = isinstance(rows[0][0], float)
    header = f"{{'descr': '{'<f8' if is_real else '<i8'}', 'fortran_order': False, 'shape': {tuple(dims)}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        for row in rows:
            file.write(struct.pack(f"<{len(row)}{'d' if is_real else 'q'}", *row))


def inputs_of(known):
    """The inputs in a JSON file of tests/data/own_models, as (dims of a sample, rows of numbers)."""
    inputs = {}
    for key, value in known.items():
        if key.startswith("input."):
            width = math.prod(value["dims"][1:])
            rows = [value["values"][i:i + width] for i in range(0, len(value["values"]), width)]
            inputs[key.removeprefix("input.")] = value["dims"][1:], rows
    return inputs


def read_safetensors(path):
    """The tensors of a file: {name: (type, shape, bytes)}."""
    data = path.read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"], data[begin + entry["data_offsets"][0]:begin + entry["data_offsets"][1]])
            for name, entry in header.items()}


class OwnModelsTest(ProgramTest):
    """Its runs have global batches of 8 in micro-batches of 2, of the first 54 of 60 samples; six are for validation."""

    def expected(self, name):
        """The losses of the model in PyTorch and the inputs that they are for, as (dims of a sample, rows of numbers)."""
        known = json.loads((MODELS / f"{name}.json").read_text())
        return known, inputs_of(known)

    def arrays(self, name, samples=60):
        """Writes arrays for a model and returns the words of --arrays. Masks have rows of the reference's inputs."""
        rng = random.Random(5)
        words = []
        for key, (dims, rows) in self.expected(name)[1].items():
            numbers = [number for row in rows for number in row]
            made = [rng.choice(rows) if "mask" in key else [rng.choice(numbers) for _ in rows[0]] for _ in range(samples)]
            write_npy(self.folder / f"{name}_{key}.npy", made, dims)
            words.append(f"{key}={name}_{key}.npy")
        return words

    def train(self, name, *arguments, data=None, **options):
        """Trains a model; an option in `arguments` takes the place of the usual one. Returns stdout and stderr."""
        usual = {"--model": MODELS / f"{name}.pt2", "--global-batch-size": 8, "--micro-batch-size": 2, "--train-iters": 6,
                 "--lr": "1e-2", "--lr-decay-style": "constant", "--split": "90,10,0", "--threads-per-rank": 1}
        kept = [word for option, value in usual.items() if option not in arguments for word in (option, value)]
        return self.trifold("pretrain", *kept, "--arrays", *(data or self.arrays(name)), *arguments, **options)

    def save_untrained(self, name, *arguments):
        """Writes the checkpoint NAME after a step that changed nothing, because no label counts."""
        words = self.arrays(name)
        dims = self.expected(name)[1]["labels"][0]
        write_npy(self.folder / "none.npy", [[-100] * math.prod(dims)] * 60, dims)
        words = ["labels=none.npy" if word.startswith("labels=") else word for word in words]
        _, err = self.train(name, "--train-iters", 1, "--save", name, *arguments, data=words)
        self.assertIn("skipped: every element of the global batch is masked out of the loss", err)

    def curve(self, name, *arguments, log="log.jsonl"):
        """Losses and gradient norms of the steps of a run, and all of its log."""
        (self.folder / log).unlink(missing_ok=True)
        self.train(name, *arguments, "--log-json", log)
        return [(line["step"], line["loss"], line["grad_norm"]) for line in self.log(log) if "loss" in line]
