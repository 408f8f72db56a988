#!/usr/bin/env python3
"""Seconds of a training step with low-rank adapters in peft, beside which `trifold pretrain --lora-rank` is measured.

    lora_speed_peft.py model FOLDER              writes a Llama with random weights (about 60 million parameters)
    lora_speed_peft.py time FOLDER [--dora] [--bf16]
                                                 trains adapters of rank 16 in all of its linear layers, 2 samples of 256
                                                 tokens a step, and prints the median of the steps
    lora_speed_peft.py compare PROGRAM [--dora] [--bf16] [--threads N] [--pairs N]
                                                 runs both by turns, in a folder of its own, and prints the median step
                                                 of each and how many times faster PROGRAM is

With --bf16, both hold the frozen weights in bf16 and the adapters in f32, which is how peft loads a model in bf16.

Needs torch, transformers and peft. OMP_NUM_THREADS says how many cores torch uses.
"""

import argparse
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

import peft
import torch
import transformers

LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
BATCH, LENGTH, STEPS = 2, 256, 12


def write(folder):
    torch.manual_seed(1)
    config = transformers.LlamaConfig(vocab_size=256, hidden_size=768, intermediate_size=2048, num_hidden_layers=8,
                                      num_attention_heads=12, num_key_value_heads=4, max_position_embeddings=LENGTH)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def measure(folder, dora, bf16):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16 if bf16 else torch.float32)
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", r=16, lora_alpha=32, lora_dropout=0.0,
                                                       target_modules=LAYERS, use_dora=dora))
    model.train()
    trained = [value for value in model.parameters() if value.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4)
    tokens = torch.randint(0, 256, (BATCH, LENGTH + 1))
    seconds = []
    for _ in range(STEPS):
        start = time.perf_counter()
        logits = model(input_ids=tokens[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    step = statistics.median(seconds[2:])
    print(f"{torch.get_num_threads()} threads: {1e3 * step:.0f} ms a step, {BATCH * LENGTH / step:.0f} tokens/s")


def switches(options):
    """The switches that both the program and `time` know."""
    return [f"--{name}" for name in ("dora", "bf16") if getattr(options, name)]


def steps_of_program(program, folder, text, options):
    """The milliseconds of the steps of a run, without the first two."""
    command = [program, "pretrain", "--load", folder, "--data-path", text, "--tokenizer-type", "byte", "--seq-length",
               LENGTH, "--micro-batch-size", BATCH, "--global-batch-size", BATCH, "--lora-rank", 16, "--lora-alpha", 32,
               "--train-iters", STEPS, "--lr", 1e-4, "--clip-grad", 1, "--threads-per-rank", options.threads, "--log-interval", 1]
    out = subprocess.run([str(word) for word in command + switches(options)], capture_output=True, text=True, check=True)
    rates = [float(rate) for rate in re.findall(r"([\d.]+) tokens/s  MFU", out.stdout + out.stderr)]
    return [1e3 * BATCH * LENGTH / rate for rate in rates[2:]]


def steps_of_peft(folder, options):
    command = [sys.executable, __file__, "time", folder] + switches(options)
    out = subprocess.run(command, capture_output=True, text=True, check=True,
                         env=dict(os.environ, OMP_NUM_THREADS=str(options.threads)))
    return float(re.search(r"([\d.]+) ms a step", out.stdout).group(1))


def compare(words):
    parser = argparse.ArgumentParser(prog="lora_speed_peft.py compare")
    parser.add_argument("program")
    parser.add_argument("--dora", action="store_true")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--pairs", type=int, default=3)
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as place:
        folder, text = os.path.join(place, "llama"), os.path.join(place, "text.txt")
        write(folder)
        letters = random.Random(1).choices("abcdefghijklmnopqrstuvwxyz \n", k=1 << 16)
        pathlib.Path(text).write_text("".join(letters))
        ours, theirs = [], []
        for _ in range(options.pairs):
            ours.append(statistics.median(steps_of_program(options.program, folder, text, options)))
            theirs.append(steps_of_peft(folder, options))
            print(f"pair: trifold {ours[-1]:.0f} ms, peft {theirs[-1]:.0f} ms", flush=True)
    print(f"{options.threads} threads, medians of {options.pairs} pairs: trifold {statistics.median(ours):.0f} ms a step, "
          f"peft {statistics.median(theirs):.0f} ms: {statistics.median(theirs) / statistics.median(ours):.2f} times faster")


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "model":
        write(sys.argv[2])
    elif len(sys.argv) >= 3 and sys.argv[1] == "time":
        measure(sys.argv[2], "--dora" in sys.argv, "--bf16" in sys.argv)
    elif len(sys.argv) >= 3 and sys.argv[1] == "compare":
        compare(sys.argv[2:])
    else:
        sys.exit(__doc__)
