#!/usr/bin/env python3
"""Peak memory of training a GPT-2 in PyTorch, on a CPU in f32, with which Trifold's memory is compared.

    python3 tools/reference/memory_torch.py [--micro-batch-size 4] [--keep-grads] [--limit-gib X] [--blocked] [--recompute]

Needs Debian's python3-torch and, or it takes minutes, libopenblas0. The model is a straightforward implementation
(GPT-2 124M by default: tied head, no dropout, attention as two products and a softmax, mean cross entropy over whole
logits), trained with AdamW on random tokens for three steps. Prints one JSON object; bytes:
    base    resident before the model is made (the interpreter and its libraries)
    states  parameters, gradients and the two moments: 16 a parameter
    peak    the most that was resident at any time
    beyond  peak - base - states: activations and everything temporary
By default gradients are dropped between steps (set_to_none), so that they do not add to the peak at the end of forward
and `beyond` flatters PyTorch; --keep-grads zeroes them in place, as Trifold does. --limit-gib sets an address-space
limit above what the interpreter maps, and the exit status tells whether the run fits. --blocked computes attention in
blocks of queries and keeps what PyTorch 2's scaled_dot_product_attention keeps of it: its inputs, its output and the
logs of the sums. --recompute checkpoints every block (torch.utils.checkpoint).
"""

import argparse
import json
import math
import os
import resource
import sys

import torch
import torch.nn.functional as F
import torch.utils.checkpoint

QUERIES = 128  # of a block


class BlockedAttention(torch.autograd.Function):
    """Causal attention of [batch, heads, positions, width] that keeps no scores."""

    @staticmethod
    def scores(query, key, begin, end):
        scores = (query[:, :, begin:end] @ key[:, :, :end].transpose(-1, -2)) * (1.0 / math.sqrt(query.shape[-1]))
        return scores.masked_fill(torch.ones(end - begin, end, dtype=torch.bool).triu(begin + 1), float("-inf"))

    @staticmethod
    def forward(ctx, query, key, value):
        out = torch.empty_like(query)
        sums = torch.empty(query.shape[:-1])
        for begin in range(0, query.shape[2], QUERIES):
            end = min(begin + QUERIES, query.shape[2])
            scores = BlockedAttention.scores(query, key, begin, end)
            sums[:, :, begin:end] = torch.logsumexp(scores, dim=-1)
            out[:, :, begin:end] = torch.softmax(scores, dim=-1) @ value[:, :, :end]
        ctx.save_for_backward(query, key, value, out, sums)
        return out

    @staticmethod
    def backward(ctx, gradient):
        query, key, value, out, sums = ctx.saved_tensors
        dquery, dkey, dvalue = torch.empty_like(query), torch.zeros_like(key), torch.zeros_like(value)
        scale = 1.0 / math.sqrt(query.shape[-1])
        for begin in range(0, query.shape[2], QUERIES):
            end = min(begin + QUERIES, query.shape[2])
            here = gradient[:, :, begin:end]
            share = torch.exp(BlockedAttention.scores(query, key, begin, end) - sums[:, :, begin:end, None])
            dvalue[:, :, :end] += share.transpose(-1, -2) @ here
            delta = (here * out[:, :, begin:end]).sum(-1, keepdim=True)
            dscores = share * (here @ value[:, :, :end].transpose(-1, -2) - delta) * scale
            dquery[:, :, begin:end] = dscores @ key[:, :, :end]
            dkey[:, :, :end] += dscores.transpose(-1, -2) @ query[:, :, begin:end]
        return dquery, dkey, dvalue


class Block(torch.nn.Module):
    def __init__(self, width, heads, blocked):
        super().__init__()
        self.heads, self.blocked = heads, blocked
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def attention(self, x, future):
        batch, seq, width = x.shape
        query, key, value = (part.view(batch, seq, self.heads, -1).transpose(1, 2)
                             for part in self.qkv(x).split(width, dim=-1))
        if self.blocked:
            mixed = BlockedAttention.apply(query, key, value)
            return self.out(mixed.transpose(1, 2).reshape(batch, seq, width))
        scores = (query @ key.transpose(-1, -2)) * (1.0 / math.sqrt(width // self.heads))
        mixed = torch.softmax(scores.masked_fill(future, float("-inf")), dim=-1) @ value
        return self.out(mixed.transpose(1, 2).reshape(batch, seq, width))

    def forward(self, x, future):
        x = x + self.attention(self.norm1(x), future)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(torch.nn.Module):
    def __init__(self, layers, width, heads, seq, vocab, blocked, recompute):
        super().__init__()
        self.recompute = recompute
        self.tokens, self.positions = torch.nn.Embedding(vocab, width), torch.nn.Embedding(seq, width)
        self.blocks = torch.nn.ModuleList(Block(width, heads, blocked) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(width)
        future = None if blocked else torch.ones(seq, seq, dtype=torch.bool).triu(1)
        self.register_buffer("future", future, persistent=False)

    def forward(self, ids, labels):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, self.future) if self.recompute else block(x, self.future)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1))


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def mapped():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def main():
    parser = argparse.ArgumentParser()
    for name, value in (("num-layers", 12), ("hidden-size", 768), ("num-attention-heads", 12), ("seq-length", 256),
                        ("vocab-size", 50304), ("micro-batch-size", 4), ("iters", 3), ("threads", 2)):
        parser.add_argument("--" + name, type=int, default=value)
    for name in ("keep-grads", "blocked", "recompute"):
        parser.add_argument("--" + name, action="store_true")
    parser.add_argument("--limit-gib", type=float)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    torch.ones(64, 64) @ torch.ones(64, 64)  # starts the threads
    base = resident()
    if args.limit_gib:
        limit = mapped() + int(args.limit_gib * 2**30)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        model = Gpt(args.num_layers, args.hidden_size, args.num_attention_heads, args.seq_length, args.vocab_size,
                    args.blocked, args.recompute)
        adam = torch.optim.AdamW(model.parameters(), lr=1e-4)
        for _ in range(args.iters):
            ids = torch.randint(args.vocab_size, (args.micro_batch_size, args.seq_length + 1))
            adam.zero_grad(set_to_none=not args.keep_grads)
            loss = model(ids[:, :-1], ids[:, 1:].contiguous())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            adam.step()
    except RuntimeError as error:
        if "memory" not in str(error):
            raise
        sys.exit(f"does not fit: {str(error).splitlines()[0]}")
    states = 16 * sum(p.numel() for p in model.parameters())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"made_by": "tools/reference/memory_torch.py", "torch": torch.__version__,
                      "micro_batch_size": args.micro_batch_size, "base": base, "states": states, "peak": peak,
                      "beyond": peak - base - states, "loss": loss.item()}))


if __name__ == "__main__":
    main()
