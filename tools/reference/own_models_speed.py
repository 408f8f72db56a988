"""Speed and memory of models of transformers that Trifold trains from PyTorch's export, beside PyTorch itself.

  pip install torch transformers
  own_models_speed.py speed TRIFOLD MODEL [--batch N] [--length N] [--rounds N] [--dropout] [--native]
  own_models_speed.py batch TRIFOLD MODEL --memory GIB [--length N] [--dropout] [--recompute]

MODEL is gpt2 (124M), bert (base), gpt2-medium or bert-large, with random weights. A step is one of AdamW in f32, with
gradients clipped by their norm, on random tokens. `speed` runs the programs in turns, so that other work on the machine
meets all of them, and prints the median step of each and its ratio to eager PyTorch; --native adds Trifold's own GPT-2.
`batch` finds the largest micro-batch with which a process of two steps stays within GIB of resident memory, for eager
PyTorch and for Trifold. --dropout keeps the rates of the model's default configuration, --recompute recomputes every
layer in both programs, --folder DIR keeps the exported model for another run.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch

import own_models_torch as own

STEPS = 4  # of each program in a round; the first is not counted
SAMPLES = 256


def configured(name, length, dropout):
    """The module with its loss."""
    from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel
    torch.manual_seed(0)
    positions = max(length, 512)
    if name.startswith("gpt2"):
        shape = {"n_embd": 1024, "n_layer": 24, "n_head": 16} if name == "gpt2-medium" else {}
        rates = {} if dropout else {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
        return own.NextToken(GPT2LMHeadModel(GPT2Config(n_positions=max(length, 1024), **shape, **rates))).train()
    shape = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
             "intermediate_size": 4096} if name == "bert-large" else {}
    rates = {} if dropout else {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
    return own.MaskedToken(BertForMaskedLM(BertConfig(max_position_embeddings=positions, **shape, **rates))).train()


def arrays_of(name, length, count):
    ids = np.random.default_rng(0).integers(1000, 30000, (count, length))
    if name.startswith("gpt2"):
        return {"input_ids": ids, "labels": np.roll(ids, -1, 1)}
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "labels": ids}


def write_model(folder, options):
    """Exports the model and writes its arrays, unless a run before did."""
    model = folder / f"{options.model}{'-dropout' if options.dropout else ''}-{options.length}.pt2"
    arrays = arrays_of(options.model, options.length, SAMPLES)
    np.savez(folder / "arrays.npz", **arrays)
    if not model.exists():
        module = configured(options.model, options.length, options.dropout)
        torch.export.save(own.exported(module, tuple(torch.from_numpy(array[:3]) for array in arrays.values())), model)
    return model


class Torch:
    """Training steps of the module in this process."""

    def __init__(self, options, compiled):
        self.module = configured(options.model, options.length, options.dropout)
        if options.recompute:
            self.module.model.gradient_checkpointing_enable()
        self.run = torch.compile(self.module) if compiled else self.module
        self.optimizer = torch.optim.AdamW(self.module.parameters(), lr=1e-4, fused=True)
        arrays = arrays_of(options.model, options.length, options.batch)
        self.arrays = [torch.from_numpy(array) for array in arrays.values()]

    def steps(self, count):
        seconds = []
        for _ in range(count):
            start = time.perf_counter()
            loss, number = self.run(*self.arrays)
            (loss / number).backward()
            torch.nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            seconds.append(time.perf_counter() - start)
        return seconds


def trifold_words(options, model, steps):
    words = [options.trifold, "pretrain", "--model", str(model), "--arrays", str(model.parent / "arrays.npz"),
             "--micro-batch-size", str(options.batch), "--global-batch-size", str(options.batch), "--train-iters",
             str(steps), "--lr", "1e-4", "--clip-grad", "1.0", "--log-interval", "1"]
    return words + (["--recompute-granularity", "full"] if options.recompute else [])


def native_words(options, steps, log):
    """Trifold's own GPT-2 of 124M, which draws its tokens."""
    words = [options.trifold, "bench", "--what", "step", "--iters", str(steps - 1), "--warmup-iters", "1", "--micro-batch-size",
             str(options.batch), "--seq-length", str(options.length), "--json", log]
    return words + ([] if options.dropout else ["--attention-dropout", "0", "--hidden-dropout", "0"])


def run(words):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stderr}")


def trifold_steps(options, model, steps):
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log.json"
        run([*trifold_words(options, model, steps), "--log-json", log])
        lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [line["step_seconds"] for line in lines if "step_seconds" in line]


def native_steps(options, steps):
    """The median of the steps, repeated: the first is not reported."""
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log.json"
        run(native_words(options, steps, log))
        return [json.loads(log.read_text())["step"]["seconds"]] * steps


def compare_speed(options, folder):
    model = write_model(folder, options)
    programs = {"eager": Torch(options, False).steps, "compiled": Torch(options, True).steps,
                "trifold": lambda count: trifold_steps(options, model, count)}
    if options.native:
        programs["native"] = lambda count: native_steps(options, count)
    seconds = {name: [] for name in programs}
    for _ in range(options.rounds):
        for name, steps in programs.items():
            seconds[name] += steps(STEPS)[1:]
    eager = statistics.median(seconds["eager"])
    for name, values in seconds.items():
        step = statistics.median(values)
        print(f"{name:8} {1000 * step:7.0f} ms a step, {options.batch * options.length / step:7.1f} tokens/s, "
              f"{eager / step:.2f} times eager", flush=True)


def largest_batch(fits):
    """The largest number for which `fits` holds, by doubling and halving."""
    good, bad = 0, None
    while bad is None or bad - good > 1:
        batch = max(1, 2 * good) if bad is None else (good + bad) // 2
        good, bad = (batch, bad) if fits(batch) else (good, batch)
    return good


def peak_of(words):
    """The most bytes that a process had resident; none if it failed."""
    child = subprocess.Popen(list(map(str, words)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_maxrss * 1024 if child.returncode == 0 else None


def compare_batches(options, folder):
    model = write_model(folder, options)
    limit = options.memory * 2**30

    def trifold(batch):
        options.batch = batch
        return trifold_words(options, model, 2)

    def eager(batch):
        words = [sys.executable, __file__, "steps", options.trifold, options.model, "--length", options.length, "--batch", batch]
        return words + (["--recompute"] if options.recompute else []) + (["--dropout"] if options.dropout else [])

    for name, words in (("eager", eager), ("trifold", trifold)):
        def fits(batch, words=words, name=name):
            peak = peak_of(words(batch))
            print(f"{name:8} batch {batch}: " + ("failed" if peak is None else f"{peak / 2**30:.2f} GiB"), flush=True)
            return peak is not None and peak <= limit
        print(f"{name:8} largest batch within {options.memory} GiB: {largest_batch(fits)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "batch", "steps"))
    parser.add_argument("trifold")
    parser.add_argument("model", choices=("gpt2", "bert", "gpt2-medium", "bert-large"))
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", type=float)
    parser.add_argument("--folder", type=pathlib.Path, help="keeps the exported model here")
    parser.add_argument("--dropout", action="store_true")
    parser.add_argument("--native", action="store_true")
    parser.add_argument("--recompute", action="store_true")
    options = parser.parse_args()
    if options.what == "steps":  # one process of `batch`
        Torch(options, False).steps(2)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or pathlib.Path(temporary)
        folder.mkdir(exist_ok=True)
        (compare_speed if options.what == "speed" else compare_batches)(options, folder)


if __name__ == "__main__":
    main()
