#!/usr/bin/env python3
"""A small BERT in PyTorch, in double precision: ten training steps, with which Trifold is compared.

    python3 tools/reference/bert_torch.py tests/golden/bert_torch.json
    python3 tools/reference/bert_torch.py tests/golden/bert_classes_torch.json classes
    python3 tools/reference/bert_torch.py tests/golden/bert_span_torch.json span
    python3 tools/reference/bert_torch.py check        # against BertForPreTraining; needs the package transformers

Needs Debian's python3-torch. It shares no code with Trifold; the file is as gpt_torch.py describes, but for the
samples, whose numbers are: length, tokens of the first sentence with its [CLS] and [SEP], 1 where the second does not
follow, then seq_length tokens, as many labels, as many weights (1: masked, the label counts).

x = norm(token + position + type); per block h = norm1(x + attention(x)), x = norm2(h + down(gelu(up(h)))) with keys
beyond the length masked; logits of the tokens norm(gelu(dense(x))) E^T + bias; logits of the pair from
tanh(pooler(first row)). Loss: cross entropy over all masked tokens of the global batch, mean, plus that of the pairs,
mean. gelu is the tanh form.

Two finetuning heads, on a smaller model with the same samples; their losses are means over the samples. classes: which
of three classes, labels[1] % 3, from tanh(pooler(first row)). span: where an answer begins and ends, 1 + labels[2] %
(length - 1) and up to two places behind; softmax over all positions; the mean of both.
"""

import math
import sys

import torch
import torch.nn.functional as F

import golden_json
import gpt_torch as gpt

CONFIG = gpt.CONFIG
CONFIG["model_type"] = "bert"
CLASSES = 3


def parameter_list():
    """(name, shape, offset, scale, decayed) of every parameter, in the order of the file."""
    width, inner = CONFIG["hidden_size"], CONFIG["ffn_hidden_size"]

    def weight(name, *shape):
        return (name, list(shape), 0.0, 0.5, True)

    def bias(name, *shape):
        return (name, list(shape), 0.0, 0.25, False)

    def norm(name):
        return [(name + ".gain", [width], 1.0, 0.25, False), bias(name + ".bias", width)]

    def linear(name, out, size):
        return [weight(name + ".weight", out, size), bias(name + ".bias", out)]

    entries = [weight("embedding.tokens.weight", CONFIG["padded_vocab_size"], width),
               weight("embedding.positions.weight", CONFIG["max_position_embeddings"], width),
               weight("embedding.types.weight", 2, width)] + norm("embedding.norm")
    for layer in range(CONFIG["num_layers"]):
        block = f"block.{layer}."
        entries += [weight(block + "attention.qkv.weight", 3, width, width),
                    bias(block + "attention.qkv.bias", 3, width)]
        entries += linear(block + "attention.out", width, width) + norm(block + "norm1")
        entries += linear(block + "mlp.up", inner, width) + linear(block + "mlp.down", width, inner)
        entries += norm(block + "norm2")
    if CONFIG.get("bert_head") == "span":
        return entries + [weight("answer.weight", 2, width)]
    if CONFIG.get("bert_head") == "classes":
        return entries + linear("pooler", width, width) + linear("classes", CLASSES, width)
    entries += linear("head.dense", width, width) + norm("head.norm") + [bias("head.bias", CONFIG["padded_vocab_size"])]
    return entries + linear("pooler", width, width) + linear("pair", 2, width)


def training_batches():
    """Pairs of random lengths; a masked token (49 in its place) follows from its neighbour more often than not."""
    vocab, seq, state = CONFIG["vocab_size"], CONFIG["seq_length"], 2

    def draw(n):
        nonlocal state
        state = gpt.mix(state)
        return (state >> 8) % n

    def sample():
        length = 4 + draw(seq - 3)
        first = 2 + draw(length - 3)
        follows = draw(2)
        labels = [draw(vocab - 1)]
        while len(labels) < seq:
            labels.append((3 * labels[-1] + 7) % (vocab - 1) if draw(4) else draw(vocab - 1))
        masked = [0 < t < length and draw(5) == 0 for t in range(seq)]
        masked[1] = masked[1] or not any(masked)
        tokens = [vocab - 1 if m else label if t < length else 0 for t, (m, label) in enumerate(zip(masked, labels))]
        return [length, first, follows] + tokens + labels + [int(m) for m in masked]

    return [[sample() for _ in range(CONFIG["global_batch_size"])] for _ in range(CONFIG["train_iters"])]


def attention(x, p, block, lengths):
    batch, seq, width = x.shape
    heads = CONFIG["num_attention_heads"]
    qkv = F.linear(x, p[block + "qkv.weight"].reshape(3 * width, width), p[block + "qkv.bias"].reshape(3 * width))
    query, key, value = (part.reshape(batch, seq, heads, -1).transpose(1, 2) for part in qkv.split(width, dim=-1))
    scores = query @ key.transpose(-1, -2) / math.sqrt(width // heads)
    padding = torch.arange(seq)[None, :] >= lengths[:, None]
    mixed = torch.softmax(scores.masked_fill(padding[:, None, None, :], float("-inf")), dim=-1) @ value
    return F.linear(mixed.transpose(1, 2).reshape(batch, seq, width), p[block + "out.weight"], p[block + "out.bias"])


def unpacked(samples):
    """lengths, token types, pair labels, tokens, labels, weights"""
    seq = CONFIG["seq_length"]
    lengths, first, follows = samples[:, 0], samples[:, 1], samples[:, 2]
    at = torch.arange(seq)[None, :]
    types = ((at >= first[:, None]) & (at < lengths[:, None])).long()
    return lengths, types, follows, samples[:, 3:3 + seq], samples[:, 3 + seq:3 + 2 * seq], samples[:, 3 + 2 * seq:]


def encoded(p, tokens, types, lengths):
    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], p[name + ".gain"], p[name + ".bias"], CONFIG["norm_epsilon"])

    def linear(x, name):
        return F.linear(x, p[name + ".weight"], p[name + ".bias"])

    x = p["embedding.tokens.weight"][tokens] + p["embedding.positions.weight"][: tokens.shape[1]]
    x = norm(x + p["embedding.types.weight"][types], "embedding.norm")
    for layer in range(CONFIG["num_layers"]):
        block = f"block.{layer}."
        h = norm(x + attention(x, p, block + "attention.", lengths), block + "norm1")
        up = F.gelu(linear(h, block + "mlp.up"), approximate="tanh")
        x = norm(h + linear(up, block + "mlp.down"), block + "norm2")
    return x, norm, linear


def logits_of(p, tokens, types, lengths):
    x, norm, linear = encoded(p, tokens, types, lengths)
    y = norm(F.gelu(linear(x, "head.dense"), approximate="tanh"), "head.norm")
    vocab = CONFIG["vocab_size"]
    words = y @ p["embedding.tokens.weight"][:vocab].T + p["head.bias"][:vocab]
    return words, linear(torch.tanh(linear(x[:, 0], "pooler")), "pair")


def loss_of(p, samples):
    lengths, types, follows, tokens, labels, weights = unpacked(samples)
    words, pairs = logits_of(p, tokens, types, lengths)
    masked = weights.flatten() > 0
    guesses = F.cross_entropy(words.flatten(0, 1)[masked], labels.flatten()[masked])
    return guesses + F.cross_entropy(pairs, follows)


def task_loss(p, samples):
    lengths, types, _, tokens, labels, _ = unpacked(samples)
    x, _, linear = encoded(p, tokens, types, lengths)
    if CONFIG["bert_head"] == "classes":
        return F.cross_entropy(linear(torch.tanh(linear(x[:, 0], "pooler")), "classes"), labels[:, 1] % CLASSES)
    begin = 1 + labels[:, 2] % (lengths - 1)
    end = torch.minimum(lengths - 1, begin + labels[:, 3] % 3)
    logits = x @ p["answer.weight"].T
    return (F.cross_entropy(logits[..., 0], begin) + F.cross_entropy(logits[..., 1], end)) / 2


def check():
    """The same weights in transformers' BertForPreTraining: largest differences of gradients and ten losses, relative."""
    from transformers import BertConfig, BertForPreTraining

    vocab = CONFIG["vocab_size"]
    model = BertForPreTraining(BertConfig(
        vocab_size=vocab, hidden_size=CONFIG["hidden_size"], num_hidden_layers=CONFIG["num_layers"],
        num_attention_heads=CONFIG["num_attention_heads"], intermediate_size=CONFIG["ffn_hidden_size"],
        hidden_act="gelu_new", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        max_position_embeddings=CONFIG["max_position_embeddings"], layer_norm_eps=CONFIG["norm_epsilon"], pad_token_id=None,
        attn_implementation="eager")).double()
    p = {entry[0]: gpt.initial(t, *entry[1:4]) for t, entry in enumerate(parameter_list())}
    pairs = [("bert.embeddings.word_embeddings.weight", lambda q: q["embedding.tokens.weight"][:vocab]),
             ("bert.embeddings.position_embeddings.weight", lambda q: q["embedding.positions.weight"]),
             ("bert.embeddings.token_type_embeddings.weight", lambda q: q["embedding.types.weight"]),
             ("cls.predictions.bias", lambda q: q["head.bias"][:vocab])]

    def both(theirs, ours):
        norm = "norm" in ours.split(".")[-1]
        pairs.append((theirs + ".weight", lambda q: q[ours + (".gain" if norm else ".weight")]))
        pairs.append((theirs + ".bias", lambda q: q[ours + ".bias"]))

    both("bert.embeddings.LayerNorm", "embedding.norm")
    both("bert.pooler.dense", "pooler")
    both("cls.predictions.transform.dense", "head.dense")
    both("cls.predictions.transform.LayerNorm", "head.norm")
    both("cls.seq_relationship", "pair")
    for layer in range(CONFIG["num_layers"]):
        theirs, ours = f"bert.encoder.layer.{layer}.", f"block.{layer}."
        for i, name in enumerate(("query", "key", "value")):
            for kind in ("weight", "bias"):
                pairs.append((theirs + f"attention.self.{name}.{kind}",
                              lambda q, n=ours + "attention.qkv." + kind, part=i: q[n][part]))
        both(theirs + "attention.output.dense", ours + "attention.out")
        both(theirs + "attention.output.LayerNorm", ours + "norm1")
        both(theirs + "intermediate.dense", ours + "mlp.up")
        both(theirs + "output.dense", ours + "mlp.down")
        both(theirs + "output.LayerNorm", ours + "norm2")
    named = dict(model.named_parameters())
    assert sorted(named) == sorted(name for name, _ in pairs), sorted(named)
    with torch.no_grad():
        for name, ours in pairs:
            named[name].copy_(ours(p))

    def their_loss(samples):
        lengths, types, follows, tokens, labels, weights = unpacked(samples)
        mask = (torch.arange(tokens.shape[1])[None, :] < lengths[:, None]).long()
        return model(input_ids=tokens, token_type_ids=types, attention_mask=mask, next_sentence_label=follows,
                     labels=labels.masked_fill(weights == 0, -100)).loss

    batches = [torch.tensor(samples) for samples in training_batches()]
    loss_of(p, batches[0]).backward()
    their_loss(batches[0]).backward()
    grads = {name: value.grad for name, value in p.items()}
    # The gradient of a key's bias is zero except for rounding: values below a millionth of the largest count as zero.
    least = 1e-6 * max(value.grad.abs().max().item() for value in named.values())
    print("gradients", max(((ours(grads) - named[name].grad).abs().max() / max(named[name].grad.abs().max().item(), least))
                           .item() for name, ours in pairs))
    expected = gpt.reference("", parameter_list(), loss_of, training_batches())["losses"]
    losses = gpt.other_losses(named, lambda name: name.endswith(".weight") and "LayerNorm" not in name, their_loss, batches)
    print("ten losses", max(abs(loss / other - 1) for loss, other in zip(losses, expected)))


def main():
    if sys.argv[1:] == ["check"]:
        return check()
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["classes"], ["span"]):
        sys.exit("usage: bert_torch.py OUTPUT.json [classes|span], or bert_torch.py check")
    if sys.argv[2:]:
        CONFIG.update(num_layers=1, hidden_size=16, ffn_hidden_size=32, bert_head=sys.argv[2])
    loss = task_loss if sys.argv[2:] else loss_of
    golden = gpt.reference("tools/reference/bert_torch.py", parameter_list(), loss, training_batches())
    return golden_json.write(sys.argv[1], golden)


if __name__ == "__main__":
    main()
