#!/usr/bin/env python3
"""The largest Llama whose adapters peft trains in a given memory, beside the one that `trifold plan` says.

    lora_memory_peft.py [--memory GB] [--width 4096] [--feed-forward 11008] [--nf4] [--layers 1 2 3] [--program PROGRAM]

Trains adapters of rank 16 in all linear layers of Llamas of a few layers, with bf16, gradient checkpointing, one sample of
2048 tokens and a vocabulary of 32 000, each in a process of its own, and reads the most memory that each process held: for
peft while it trains, without what it holds of the files while it loads them. A line through these figures says how many layers
fit. With --nf4, bitsandbytes holds the frozen weights in 4 bits, and the
model is prepared by peft's `prepare_model_for_kbit_training`. With --program, the same models are trained by PROGRAM, with
full recomputation, and, with --nf4, `--quantize-base nf4`.

Needs torch, transformers, peft, and bitsandbytes for --nf4. Random weights are read from a folder in 16 bits, as published
models are.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

LENGTH, VOCABULARY = 2048, 32000
LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def write(folder, options, layers):
    import torch
    import transformers
    torch.set_default_dtype(torch.bfloat16)
    heads = options.width // 128
    config = transformers.LlamaConfig(vocab_size=VOCABULARY, hidden_size=options.width, num_hidden_layers=layers,
                                      intermediate_size=options.feed_forward, num_attention_heads=heads,
                                      num_key_value_heads=heads, max_position_embeddings=LENGTH)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def train(folder, nf4):
    import peft
    import torch
    import transformers
    if nf4:
        scheme = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16,
                                                 bnb_4bit_use_double_quant=True)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, quantization_config=scheme,
                                                                  device_map={"": "cpu"})
        model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=True)
    else:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
        model.gradient_checkpointing_enable()
        model.enable_input_require_grads()
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", r=16, lora_alpha=32, target_modules=LAYERS))
    model.train()
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    optimizer = torch.optim.AdamW([value for value in model.parameters() if value.requires_grad], lr=1e-4)
    tokens = torch.randint(0, VOCABULARY, (1, LENGTH))
    for _ in range(2):
        optimizer.zero_grad()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
    status = pathlib.Path("/proc/self/status").read_text()
    print(f"loss {loss.item():.3f}, held {re.search(r'VmHWM:\s+(\d+) kB', status).group(1)} KiB")


def peak(command):
    """GiB that the command held at most, or says that it held."""
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process.stderr, process.stdout:
        error, out = process.stderr.read(), process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(error[-3000:])
    said = re.search(r"held (\d+) KiB", out)
    return int(said.group(1) if said else usage.ru_maxrss) / 2**20


def parameters(options, layers):
    width = options.width
    return layers * (4 * width * width + 3 * width * options.feed_forward) + 2 * VOCABULARY * width


def report(title, held, options):
    """Fits a line to {layers: GiB} and says what fits into the memory."""
    count = len(held)
    mean_x, mean_y = sum(held) / count, sum(held.values()) / count
    slope = sum((x - mean_x) * (y - mean_y) for x, y in held.items()) / sum((x - mean_x) ** 2 for x in held)
    rest = mean_y - slope * mean_x
    most = int((options.memory * 1e9 / 2**30 - rest) / slope)
    figures = ", ".join(f"{layers}: {gib:.2f}" for layers, gib in held.items())
    print(f"{title}: GiB of {figures} layers; {slope:.3f} a layer and {rest:.2f}; {options.memory} GB hold {most} layers, "
          f"{parameters(options, most) / 1e9:.1f} G parameters", flush=True)


def program(options, folder):
    return [options.program, "pretrain", "--load", folder, "--finetune", "--mock-data", "--lora-rank", 16, "--lora-alpha", 32, "--bf16",
            "--seq-length", LENGTH, "--micro-batch-size", 1, "--global-batch-size", 1, "--train-iters", 2, "--lr", 1e-4,
            "--recompute-granularity", "full"] + ["--quantize-base", "nf4"] * options.nf4


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", type=float, default=16)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--feed-forward", type=int, default=11008)
    parser.add_argument("--layers", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--nf4", action="store_true")
    parser.add_argument("--program", type=pathlib.Path)
    parser.add_argument("--write", metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--train", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        return write(options.write, options, options.layers[0])
    if options.train:
        return train(options.train, options.nf4)
    theirs, ours = {}, {}
    again = [sys.executable, __file__, "--width", options.width, "--feed-forward", options.feed_forward] + ["--nf4"] * options.nf4
    for layers in options.layers:
        with tempfile.TemporaryDirectory() as folder:
            peak(again + ["--layers", layers, "--write", folder])
            theirs[layers] = peak(again + ["--train", folder])
            if options.program:
                ours[layers] = peak(program(options, folder))
        print(f"{layers} layers: peft {theirs[layers]:.2f} GiB" + f", trifold {ours.get(layers, 0):.2f} GiB" * bool(ours), flush=True)
    report("peft", theirs, options)
    if ours:
        report("trifold", ours, options)
    return None


if __name__ == "__main__":
    sys.exit(main())
