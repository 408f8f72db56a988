#!/usr/bin/env python3
"""The most positions of a sample of GPT-2 124M that PyTorch trains within a limit of memory, on a processor.

One step is counted with PyTorch's own MemTracker on tensors without content (FakeTensorMode), so nothing is computed
and the result does not depend on the machine: weights, gradients, AdamW's state, activations, and the largest
temporaries of operators that are tensors. `--check T` runs a real step of T positions and prints the peak of the
process beside the count. Attention is torch.nn.functional.scaled_dot_product_attention.

  longest_sample_torch.py [--gib 8] [--checkpoint] [--step 1024] [--check T]
"""

import argparse
import resource

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils.checkpoint import checkpoint

LAYERS, WIDTH, HEADS, VOCAB = 12, 768, 12, 50257


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        rows = x.shape[1]
        q, k, v = (part.view(1, rows, HEADS, WIDTH // HEADS).transpose(1, 2)
                   for part in self.qkv(self.norm1(x)).split(WIDTH, dim=2))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(1, rows, WIDTH))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, positions, recompute):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, WIDTH), nn.Embedding(positions, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.recompute = recompute

    def forward(self, tokens, labels):
        x = self.tokens(tokens) + self.positions.weight[None]
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        logits = nn.functional.linear(self.norm(x), self.tokens.weight)
        return nn.functional.cross_entropy(logits.view(-1, VOCAB), labels.view(-1))


def steps(positions, recompute, tracker=None):
    """Two steps, of which the second has AdamW's state from the beginning."""
    model = Gpt(positions, recompute)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    tokens = torch.randint(VOCAB, (1, positions + 1))
    if tracker is not None:
        tracker.track_external(model, optimizer)
    for _ in range(2):
        if tracker is None:
            one_step(model, optimizer, tokens)
        else:
            tracker.reset_mod_stats()
            with tracker:
                one_step(model, optimizer, tokens)


def one_step(model, optimizer, tokens):
    model(tokens[:, :-1], tokens[:, 1:]).backward()
    optimizer.step()
    optimizer.zero_grad()


def counted(positions, recompute):
    tracker = MemTracker()
    with FakeTensorMode():
        steps(positions, recompute, tracker)
    return sum(kinds["Total"] for kinds in tracker.get_tracker_snapshot("peak").values())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=8)
    parser.add_argument("--checkpoint", action="store_true", help="recompute every layer in backward")
    parser.add_argument("--step", type=int, default=1024)
    parser.add_argument("--check", type=int, help="run a real step of so many positions")
    options = parser.parse_args()
    print(f"PyTorch {torch.__version__}")
    if options.check:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        steps(options.check, options.checkpoint)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{options.check} positions: counted {counted(options.check, options.checkpoint) / 2**30:.3f} GiB, "
              f"the process {peak:.3f} GiB, {before:.3f} of them before the model")
        return
    positions = 0
    while (most := counted(positions + options.step, options.checkpoint) / 2**30) <= options.gib:
        positions += options.step
        print(f"{positions} positions: {most:.3f} GiB", flush=True)
    print(f"{positions + options.step} positions need {most:.3f} GiB; the most that fit {options.gib:g} GiB: {positions}")


if __name__ == "__main__":
    main()
