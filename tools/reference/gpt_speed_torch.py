#!/usr/bin/env python3
"""Training throughput of a GPT-2 in PyTorch, with which Trifold's is compared: on a GPU, for tests/gpu.sh, or on processors.

    python3 tools/reference/gpt_speed_torch.py --layers 12 --width 768 --heads 12 --batch 32 [--steps 10] [--largest]
        [--bf16-parameters] [--max-autotune]

bf16 autocast over f32 parameters, fused AdamW, random tokens of 1024 positions. Prints a line for each of eager and
compiled, with flash and with cuDNN attention: tokens a second (median step), the card's memory in use after the steps
(what nvidia-smi would show, with the allocator's cache) and the most that tensors had. Exit status 1 when eager or
compiled runs with neither attention. --bf16-parameters keeps parameters, gradients and the optimizer's state in bf16 instead, which
is less than Trifold keeps but PyTorch's fastest; --max-autotune compiles so, and then nothing runs eagerly. With --largest instead the largest batch, to an eighth of it, that runs compiled
with flash attention: doubled from --batch while it fits, then halfway twice.

    python3 tools/reference/gpt_speed_torch.py --cpu --batch 4 --length 256 [--steps 10]

On processors everything is in f32, with PyTorch's own number of threads and choice of attention; a line for each of eager and compiled,
with the most memory that the process has had so far.
"""

import argparse
import gc
import resource
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

VOCABULARY = 50304


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = torch.nn.LayerNorm(width)
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.proj = torch.nn.Linear(width, width)
        self.norm2 = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(torch.nn.Module):
    def __init__(self, layers, width, heads, length):
        super().__init__()
        self.tokens = torch.nn.Embedding(VOCABULARY, width)
        self.positions = torch.nn.Embedding(length, width)
        self.blocks = torch.nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, ids, labels):
        x = self.tokens(ids) + self.positions.weight
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, VOCABULARY), labels.view(-1))


def measure(options, compiled, backend):
    """(tokens a second, bytes in use on the card, most bytes of tensors)"""
    torch.cuda.reset_peak_memory_stats()
    model = Gpt(options.layers, options.width, options.heads, options.length).cuda()
    if options.bf16_parameters:
        model = model.bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    mode = "max-autotune" if options.max_autotune else "default"
    run = torch.compile(model, mode=mode) if compiled else model
    ids = torch.randint(VOCABULARY, (options.batch, options.length), device="cuda")
    seconds = []
    with sdpa_kernel(backend):
        for _ in range(options.steps + 5):
            torch.cuda.synchronize()
            start = time.perf_counter()
            with torch.autocast("cuda", torch.bfloat16, enabled=not options.bf16_parameters):
                loss = run(ids, ids)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
    free, total = torch.cuda.mem_get_info()
    rate = options.batch * options.length / statistics.median(seconds[5:])
    return rate, total - free, torch.cuda.max_memory_allocated()


def measure_cpu(options, compiled):
    """Tokens a second on processors."""
    model = Gpt(options.layers, options.width, options.heads, options.length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    run = torch.compile(model) if compiled else model
    ids = torch.randint(VOCABULARY, (options.batch, options.length))
    seconds = []
    for _ in range(options.steps + 3):
        start = time.perf_counter()
        run(ids, ids).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - start)
    return options.batch * options.length / statistics.median(seconds[3:])


def forget():
    """Gives back what the last variant had, also where an error's traceback or a cycle held it."""
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()


def fits(options, batch):
    forget()
    try:
        measure(argparse.Namespace(**{**vars(options), "steps": 1, "batch": batch}), True, SDPBackend.FLASH_ATTENTION)
    except torch.OutOfMemoryError:
        return False
    return True


def largest_batch(options):
    batch = options.batch
    if not fits(options, batch):
        return 0
    while fits(options, 2 * batch):
        batch *= 2
    for step in (2, 4):
        if fits(options, batch + batch // step):
            batch += batch // step
    return batch


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("layers", 12), ("width", 768), ("heads", 12), ("batch", 32), ("length", 1024), ("steps", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name in ("largest", "bf16-parameters", "max-autotune", "cpu"):
        parser.add_argument(f"--{name}", action="store_true")
    options = parser.parse_args()
    if options.cpu:
        for compiled in (False, True):
            rate = measure_cpu(options, compiled)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            print(f"torch {torch.__version__} {'compiled' if compiled else 'eager'}, {torch.get_num_threads()} threads: "
                  f"{rate:.1f} tokens/s, peak {peak:.2f} GiB", flush=True)
        return 0
    torch.backends.cuda.matmul.allow_tf32 = True
    if options.largest:
        print(f"torch {torch.__version__} compiled, flash: largest batch {largest_batch(options)}")
        return 0
    ran = set()
    ways = (True,) if options.max_autotune else (False, True)
    for compiled in ways:
        for name, backend in (("flash", SDPBackend.FLASH_ATTENTION), ("cuDNN", SDPBackend.CUDNN_ATTENTION)):
            forget()
            try:
                rate, card, tensors = measure(options, compiled, backend)
                result = f"{rate:.0f} tokens/s, peak {card / 2**30:.1f} GiB, tensors {tensors / 2**30:.1f} GiB"
                ran.add(compiled)
            except RuntimeError as error:
                result = f"does not run: {str(error).splitlines()[0]}"
            print(f"torch {torch.__version__} {'compiled' if compiled else 'eager'}, {name}: {result}")
    return 0 if len(ran) == len(ways) else 1


if __name__ == "__main__":
    sys.exit(main())
