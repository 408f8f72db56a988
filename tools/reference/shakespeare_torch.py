#!/usr/bin/env python3
"""A GPT-2 on a text file, byte by byte, in plain PyTorch, with which Trifold's first real training run was compared.

    python3 tools/reference/shakespeare_torch.py TEXT [--steps 2000] [--threads 2] [--seed 1]

Needs Debian's python3-torch. Configuration: 4 layers, 4 heads, width 128, context 64, 12 random windows a step, no
dropout, AdamW (beta 0.9 and 0.99, weight decay 0.1 on weights only), gradient norm clipped at 1, learning rate warmed
up over 100 steps to 1e-3 and falling to 1e-4 by cosine over the run. The last tenth of the text is held out.

Every 250 steps it prints the mean loss of 20 batches of 12 random held-out windows; at the end the loss over the whole
held-out part in windows that do not overlap, and the time it took. The time is meaningful only with an optimised BLAS
(Debian: libopenblas0; its threads are OPENBLAS_NUM_THREADS): the reference BLAS is several times slower.
"""

import argparse
import math
import time

import torch
import torch.nn.functional as F

LAYERS, HEADS, WIDTH, CONTEXT, VOCAB, BATCH = 4, 4, 128, 64, 256, 12
LR, MIN_LR, WARMUP, WEIGHT_DECAY, BETAS, CLIP = 1e-3, 1e-4, 100, 0.1, (0.9, 0.99), 1.0
EVALUATE_EVERY, EVALUATE_BATCHES = 250, 20


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def attention(self, x):
        batch, seq, _ = x.shape
        query, key, value = (part.view(batch, seq, HEADS, -1).transpose(1, 2) for part in self.qkv(x).split(WIDTH, -1))
        scores = query @ key.transpose(-1, -2) / math.sqrt(WIDTH // HEADS)
        future = torch.ones(seq, seq, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(future, float("-inf")).softmax(-1) @ value
        return self.out(mixed.transpose(1, 2).reshape(batch, seq, WIDTH))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = torch.nn.Embedding(VOCAB, WIDTH), torch.nn.Embedding(CONTEXT, WIDTH)
        self.blocks = torch.nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.final_norm = torch.nn.LayerNorm(WIDTH)
        for module in self.modules():
            if isinstance(module, (torch.nn.Linear, torch.nn.Embedding)):
                torch.nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, torch.nn.Linear):
                torch.nn.init.zeros_(module.bias)
        for block in self.blocks:  # what is added to the residual stream, 2 * LAYERS times, starts smaller
            for linear in (block.out, block.down):
                torch.nn.init.normal_(linear.weight, std=0.02 / math.sqrt(2 * LAYERS))

    def loss(self, windows):
        """Mean cross entropy of [batch, CONTEXT + 1] tokens: each predicts the next."""
        ids, labels = windows[:, :-1], windows[:, 1:]
        x = self.blocks(self.tokens(ids) + self.positions.weight[: ids.shape[1]])
        return F.cross_entropy((self.final_norm(x) @ self.tokens.weight.T).flatten(0, 1), labels.flatten())


def learning_rate(step, steps):
    warmup = min(WARMUP, steps // 2)  # a shortened run warms up too
    if step <= warmup:
        return LR * step / max(warmup, 1)
    return MIN_LR + (LR - MIN_LR) * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))


def random_windows(text, generator):
    starts = torch.randint(len(text) - CONTEXT, (BATCH,), generator=generator)
    return torch.stack([text[start : start + CONTEXT + 1] for start in starts])


@torch.no_grad()
def sampled_loss(model, held_out, seed):
    generator = torch.Generator().manual_seed(seed)
    losses = [model.loss(random_windows(held_out, generator)).item() for _ in range(EVALUATE_BATCHES)]
    return sum(losses) / len(losses)


@torch.no_grad()
def whole_loss(model, held_out):
    """Mean over every window [i * CONTEXT, (i + 1) * CONTEXT] that fits, and the number of those windows."""
    count = (len(held_out) - 1) // CONTEXT
    windows = held_out.unfold(0, CONTEXT + 1, CONTEXT)[:count]
    total = sum(model.loss(part).item() * len(part) for part in windows.split(64))
    return total / count, count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    generator = torch.Generator().manual_seed(options.seed + 1)

    with open(options.text, "rb") as file:
        text = torch.tensor(list(file.read()), dtype=torch.int64)
    train, held_out = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]
    if len(held_out) <= CONTEXT:
        parser.error(f"{options.text} is too short: the last tenth must have more than {CONTEXT} bytes")
    model = Gpt()
    decayed = [p for name, p in model.named_parameters() if p.dim() >= 2]
    others = [p for name, p in model.named_parameters() if p.dim() < 2]
    adam = torch.optim.AdamW([{"params": decayed, "weight_decay": WEIGHT_DECAY},
                              {"params": others, "weight_decay": 0.0}], betas=BETAS, eps=1e-8)
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {len(train)} bytes to train on,"
          f" {len(held_out)} held out, {options.threads} threads", flush=True)

    training_seconds, begin = 0.0, time.monotonic()
    for step in range(options.steps + 1):
        if step % EVALUATE_EVERY == 0 or step == options.steps:
            training_seconds += time.monotonic() - begin
            print(f"step {step}: validation loss {sampled_loss(model, held_out, options.seed + 2):.4f},"
                  f" {training_seconds:.1f} s of training", flush=True)
            begin = time.monotonic()
        if step == options.steps:
            break
        for group in adam.param_groups:
            group["lr"] = learning_rate(step, options.steps)
        adam.zero_grad(set_to_none=True)
        model.loss(random_windows(train, generator)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        adam.step()
    loss, count = whole_loss(model, held_out)
    print(f"whole held-out part: validation loss {loss:.4f} over {count} windows of {CONTEXT};"
          f" {training_seconds:.1f} s of training, without the evaluations")


if __name__ == "__main__":
    main()
