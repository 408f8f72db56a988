#!/usr/bin/env python3
"""BERT on a real text in PyTorch, on the batches that Trifold trains on: its losses next to those of a log.

    trifold pretrain --model-type bert --data-path TEXT --split 1,0,0 --num-layers 2 --hidden-size 64 --num-attention-heads 4 \
      --seq-length 64 --micro-batch-size 32 --train-iters 400 --lr 3e-3 --lr-warmup-iters 40 --lr-decay-style cosine --log-json LOG
    python3 tools/reference/bert_text_torch.py TEXT LOG

Needs Debian's python3-torch. It shares no code with Trifold: samples and initial weights are computed here from the
same seed, by the definitions in tasks/bert_samples.h and core/random.h. The text is read as bytes, a sentence a line, a
blank line between documents. Options after LOG, with the defaults above: --steps, --layers, --width, --heads, --length,
--batch, --lr,
--warmup, --seed, --f64.
"""

import argparse
import json
import sys

import numpy as np
import torch

import bert_torch
import gpt_torch as gpt

PAD, CLS, SEP, MASK, VOCAB = 256, 257, 258, 259, 260
SPACE = b" \t\r\n\v\f"
WORD, LONG = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


def key_of(seed, name):
    h = 0xCBF29CE484222325 ^ (seed * 0x9E3779B97F4A7C15 & LONG)
    for c in name.encode():
        h = (h ^ c) * 0x100000001B3 & LONG
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9 & LONG
    h = (h ^ h >> 27) * 0x94D049BB133111EB & LONG
    h ^= h >> 31
    return h & WORD, h >> 32


def philox(key, counter):
    """Four words. `counter` may be an array of NumPy's uint64, and they arrays."""
    number = np.uint64 if isinstance(counter, np.ndarray) else int
    word, half, (lo, hi) = number(WORD), number(32), key
    x = [counter & word, counter >> half, counter ^ counter, counter ^ counter]
    for _ in range(10):
        a, b = number(0xD2511F53) * x[0], number(0xCD9E8D57) * x[2]
        x = [b >> half ^ x[1] ^ number(lo), b & word, a >> half ^ x[3] ^ number(hi), a & word]
        lo, hi = (lo + 0x9E3779B9) & WORD, (hi + 0xBB67AE85) & WORD
    return x


def normal_numbers(seed, name, shape, std):
    words = philox(key_of(seed, name), np.arange(int(np.prod(shape)), dtype=np.uint64))
    u, v = ((w.astype(np.float64) + 0.5) / 2**32 for w in words[:2])
    return torch.from_numpy(std * np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)).reshape(shape)


class Draws:
    def __init__(self, key, sample):
        self.key, self.at = key, sample << 24

    def below(self, n):
        words = philox(self.key, self.at)
        self.at += 1
        return (words[0] << 32 | words[1]) % n

    def real(self):
        return self.below(2**53) / 2**53


def permuted(key, count, i):
    half = 1
    while 1 << 2 * half < count:
        half += 1
    mask, value = (1 << half) - 1, i
    while True:
        left, right = value >> half, value & mask
        for r in range(4):
            left, right = right, (left ^ philox(key, r << 32 | right)[0]) & mask
        value = left << half | right
        if value < count:
            return value


class Text:
    """Sentences of documents, and the chunks a pass is made of."""

    def __init__(self, path, length):
        self.tokens, self.begins, self.documents = bytearray(), [0], [[0, 0]]
        with open(path, "rb") as file:
            for line in file.read().split(b"\n"):
                line = line.strip(SPACE)
                if line:
                    self.tokens += line
                    self.begins.append(len(self.tokens))
                elif self.documents[-1][0] < len(self.begins) - 1:
                    self.documents[-1][1] = len(self.begins) - 1
                    self.documents.append([len(self.begins) - 1, 0])
        self.documents[-1][1] = len(self.begins) - 1
        self.documents = [d for d in self.documents if d[0] < d[1]]
        self.chunks = []
        for d, (first, end) in enumerate(self.documents):
            while first < end:
                last = self.enough(first, end, length)
                self.chunks.append((d, first, last))
                first = last

    def enough(self, first, end, length):
        last = first + 1
        while last < end and self.begins[last] - self.begins[first] < length:
            last += 1
        return last

    def piece(self, first, end):
        return [self.begins[first], self.begins[end] - self.begins[first]]


def shorten(piece, length, draws):
    if piece[1] > length:
        piece[0] += draws.below(piece[1] - length + 1)
        piece[1] = length


class Samples:
    def __init__(self, path, length, seed):
        self.length, self.room = length, length - 3
        self.text = Text(path, self.room)
        self.key, self.order = key_of(seed, "bert samples"), key_of(seed, "order of bert samples")

    def pair(self, index, draws):
        text, count = self.text, len(self.text.chunks)
        words = philox(self.order, index // count)
        key = key_of(words[0] << 32 | words[1], "order of a pass")
        document, first, last = text.chunks[permuted(key, count, index % count)]
        length = 2 + draws.below(self.room - 1) if draws.real() < 0.1 else self.room
        end = text.enough(first, last, length)
        cut = first + 1 + (draws.below(end - first - 1) if end - first > 1 else 0)
        one = text.piece(first, cut)
        random = end - first == 1 or draws.real() < 0.5
        two = self.other(document, length - one[1], draws) if random else text.piece(cut, end)
        shorten(one, max(length - length // 2, length - two[1]), draws)
        shorten(two, length - one[1], draws)
        return one, two, random

    def other(self, document, length, draws):
        other = draws.below(len(self.text.documents) - 1)
        begin, end = self.text.documents[other + (other >= document)]
        first = begin + draws.below(end - begin)
        return self.text.piece(first, self.text.enough(first, end, length))

    def read(self, index):
        """As bert_torch.py packs a sample."""
        draws = Draws(self.key, index)
        one, two, random = self.pair(index, draws)
        labels, units, starts = [CLS], [], []
        for begin, length in (one, two):
            units += range(len(labels), len(labels) + length)
            labels += list(self.text.tokens[begin:begin + length]) + [SEP]
            starts.append(len(labels))
        real, weights = len(labels), [0] * self.length
        labels += [PAD] * (self.length - real)
        tokens = list(labels)
        for u in range(min(len(units), max(1, int(0.15 * real + 0.5)))):
            swap = u + draws.below(len(units) - u)
            units[u], units[swap] = units[swap], units[u]
            weights[units[u]] = 1
            what = draws.below(10)
            if what < 8:
                tokens[units[u]] = MASK
            elif what == 8:
                tokens[units[u]] = draws.below(256)
        return [real, starts[0], int(random)] + tokens + labels + weights


def losses_of(options):
    seq = options.length
    bert_torch.CONFIG.update(
        num_layers=options.layers, hidden_size=options.width, num_attention_heads=options.heads, seq_length=seq,
        ffn_hidden_size=4 * options.width, max_position_embeddings=seq, vocab_size=VOCAB, padded_vocab_size=VOCAB,
        global_batch_size=options.batch, lr=options.lr, min_lr=0.0, lr_warmup_init=0.0, lr_warmup_iters=options.warmup,
        lr_decay_iters=options.steps)
    p, groups = {}, {True: [], False: []}
    for name, shape, offset, _, decayed in bert_torch.parameter_list():
        start = normal_numbers(options.seed, name, shape, 0.02) if decayed else torch.full(shape, offset, dtype=torch.float64)
        p[name] = start.to(torch.float64 if options.f64 else torch.float32).requires_grad_()
        groups[decayed].append(p[name])
    adam = torch.optim.AdamW([{"params": groups[True], "weight_decay": 0.01}, {"params": groups[False], "weight_decay": 0.0}],
                             betas=(0.9, 0.999), eps=1e-8)
    samples = Samples(options.text, seq, options.seed)
    for step in range(options.steps):
        batch = [samples.read(step * options.batch + b) for b in range(options.batch)]
        adam.zero_grad()
        loss = bert_torch.loss_of(p, torch.tensor(batch))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(p.values(), 1.0)
        for group in adam.param_groups:
            group["lr"] = gpt.learning_rate(step)
        adam.step()
        yield loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("log")
    for name, default in (("steps", 400), ("layers", 2), ("width", 64), ("heads", 4), ("length", 64), ("batch", 32),
                          ("warmup", 40), ("seed", 1234)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--f64", action="store_true")
    options = parser.parse_args()
    with open(options.log, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    trifold = [line["loss"] for line in lines if "loss" in line][:options.steps]
    largest, differences = 0.0, []
    for step, loss in enumerate(losses_of(options), 1):
        differences.append(abs(trifold[step - 1] / loss - 1))
        largest = max(largest, differences[-1])
        if step in (1, 10) or step % 50 == 0:
            print(f"step {step:5}  trifold {trifold[step - 1]:.6f}  torch {loss:.6f}  largest relative difference so far {largest:.1e}",
                  flush=True)
    print(f"mean relative difference {sum(differences) / len(differences):.1e}")


if __name__ == "__main__":
    sys.exit(main())
