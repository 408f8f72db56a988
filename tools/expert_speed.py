#!/usr/bin/env python3
"""Measures a layer of experts against a dense layer of as many active flops, on one rank and on two, and optionally beside
PyTorch.

    tools/expert_speed.py TRIFOLD [ROUNDS] [--torch]

TRIFOLD is the program. Runs take turns, ROUNDS of them (3), and medians are compared. 8 experts of width 3072, of which a token chooses 2, between
activations of width 768, against a network of width 6144; gated, f32, 2048 tokens. The time of a layer is that of a block less that of a block
with a network of width 64, whose attention is the same. --torch needs PyTorch and transformers, and also times their Mixtral layer, with a
loop over experts and with its grouped products.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

WIDTH, FFN, EXPERTS, CHOICES, TOKENS = 768, 3072, 8, 2, 2048
NARROW = 64
BLOCK = (f"--what blocks --num-layers 2 --hidden-size {WIDTH} --num-attention-heads 12 --seq-length 256 --vocab-size 512 "
         "--disable-bias-linear --swiglu --iters 5").split()
MIXTURE = f"--num-experts {EXPERTS} --moe-ffn-hidden-size {FFN} --moe-router-topk {CHOICES}".split()
ONE_RANK, TWO_RANKS = ["--micro-batch-size", "8"], ["--micro-batch-size", "4", "--ranks", "2", "--dp", "2"]
KINDS = {"dense": ["--ffn-hidden-size", str(CHOICES * FFN), *ONE_RANK],
         "narrow": ["--ffn-hidden-size", str(NARROW), *ONE_RANK],
         "experts": [*MIXTURE, *ONE_RANK],
         "two ranks": [*MIXTURE, *TWO_RANKS],
         "two ranks, ep 2": [*MIXTURE, *TWO_RANKS, "--ep", "2"],
         "two ranks, narrow": ["--ffn-hidden-size", str(NARROW), *TWO_RANKS]}


def block_seconds(program, words):
    """Forward and whole backward of a block."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "blocks.json"
        subprocess.run([program, "bench", *BLOCK, *words, "--json", file], check=True, stdout=subprocess.DEVNULL)
        layer = json.loads(file.read_text())["blocks"]["layer"]
    return layer["f"], layer["b"]


def torch_layers():
    import torch  # pylint: disable=import-outside-toplevel
    from transformers import MixtralConfig  # pylint: disable=import-outside-toplevel
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock  # pylint: disable=import-outside-toplevel
    torch.manual_seed(1)
    torch.set_num_threads(2)

    def layer(way):
        config = MixtralConfig(hidden_size=WIDTH, intermediate_size=FFN, num_local_experts=EXPERTS, num_experts_per_tok=CHOICES,
                               num_attention_heads=12)
        config._experts_implementation = way  # pylint: disable=protected-access
        block = MixtralSparseMoeBlock(config)
        for weight in block.parameters():
            torch.nn.init.normal_(weight, std=0.02)
        return block

    def seconds(block):
        x = torch.randn(8, TOKENS // 8, WIDTH, requires_grad=True)
        times = []
        for _ in range(5):
            start = time.monotonic()
            y = block(x)
            middle = time.monotonic()
            y.backward(torch.ones_like(y))
            times.append((middle - start, time.monotonic() - middle))
        return tuple(statistics.median(part) for part in zip(*times[1:]))

    blocks = {f"PyTorch {torch.__version__}, {way}": layer(way) for way in ("eager", "grouped_mm")}
    return {name: lambda block=block: seconds(block) for name, block in blocks.items()}


def main():
    words = [word for word in sys.argv[1:] if word != "--torch"]
    if not words:
        sys.exit(__doc__)
    rounds = int(words[1]) if len(words) > 1 else 3
    runs = {name: lambda options=options: block_seconds(words[0], options) for name, options in KINDS.items()}
    if "--torch" in sys.argv:
        runs.update(torch_layers())
    times = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(run())
    median = {name: [statistics.median(part) for part in zip(*measured)] for name, measured in times.items()}
    for one, narrow in (("dense", "narrow"), ("experts", "narrow"), ("two ranks", "two ranks, narrow"),
                        ("two ranks, ep 2", "two ranks, narrow")):
        median[one] = [a - b for a, b in zip(median[one], median[narrow])]
    active = [6 * WIDTH * CHOICES * FFN * TOKENS * times for times in (1, 2)]
    for name, (forward, backward) in median.items():
        if "narrow" in name:
            continue
        print(f"{name:32} forward {active[0] / forward / 1e9:6.1f} GFLOP/s, backward {active[1] / backward / 1e9:6.1f}, "
              f"both {sum(active) / (forward + backward) / 1e9:6.1f}")

    def ratio(a, b):
        return sum(median[b]) / sum(median[a])

    print(f"experts against dense: {ratio('experts', 'dense'):.3f} (asked 0.85)")
    print(f"ep 2 against ep 1, on two ranks: {ratio('two ranks, ep 2', 'two ranks'):.3f} (asked 0.90)")
    for name in median:
        if name.startswith("PyTorch"):
            print(f"experts against {name}: {ratio('experts', name):.2f} (asked 1.5)")


if __name__ == "__main__":
    main()
