#!/usr/bin/env python3
"""A small GPT-2 in PyTorch, in double precision: ten training steps, with which Trifold is compared.

    python3 tools/reference/gpt_torch.py tests/golden/gpt_torch.json

Needs Debian's python3-torch. It shares no code with Trifold. The file holds the configuration, the token ids of every
step, the formula of the initial parameters, the gradient of every parameter in the first step (before clipping), and
of all ten steps the loss, the gradient norm and the learning rate; at the end checksums of the trained parameters.

Model: token + learned position embeddings; per block x += attention(norm1(x)), x += mlp(norm2(x)); a final norm;
logits = x @ tokens.T over the first `vocab_size` entries (the rest of the table is padding). Loss: mean cross entropy
over all tokens of the global batch. Update: the gradient is scaled by min(1, clip / (norm + 1e-6)), then AdamW with
decoupled weight decay on the parameters marked `decayed` (weights; not biases, not norm gains).
"""

import math
import sys

import torch
import torch.nn.functional as F

import golden_json

CONFIG = {
    "num_layers": 2, "num_attention_heads": 4, "hidden_size": 32, "ffn_hidden_size": 128, "seq_length": 16,
    "max_position_embeddings": 16, "vocab_size": 50, "padded_vocab_size": 64, "norm_epsilon": 1e-5,
    "micro_batch_size": 2, "global_batch_size": 4, "train_iters": 10,
    "lr": 0.01, "min_lr": 0.001, "lr_decay_style": "cosine", "lr_decay_iters": 10, "lr_warmup_iters": 3,
    "lr_warmup_init": 0.0005,
    "weight_decay": 0.1, "clip_grad": 1.0, "adam_beta1": 0.9, "adam_beta2": 0.95, "adam_eps": 1e-8,
}

INITIAL = ("parameter `tensor` (its place in the list), element `i` in memory order: h = mix(i + 65536 * tensor) in"
           " 32-bit arithmetic that wraps; value = offset + scale * ((h >> 16) / 65536 - 0.5), exact in f32 and f64."
           " mix(h): h += 0x9e3779b9; h ^= h >> 16; h *= 0x85ebca6b; h ^= h >> 13; h *= 0xc2b2ae35; h ^= h >> 16")


def mix(h):
    h = (h + 0x9E3779B9) & 0xFFFFFFFF
    h = ((h ^ (h >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    h = ((h ^ (h >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return h ^ (h >> 16)


def parameter_list():
    """(name, shape, offset, scale, decayed) of every parameter, in the order of the file."""
    layers, width, inner = CONFIG["num_layers"], CONFIG["hidden_size"], CONFIG["ffn_hidden_size"]

    def weight(name, *shape):
        return (name, list(shape), 0.0, 0.5, True)

    def bias(name, *shape):
        return (name, list(shape), 0.0, 0.25, False)

    def norm(name):
        return [(name + ".gain", [width], 1.0, 0.25, False), bias(name + ".bias", width)]

    entries = [weight("embedding.tokens.weight", CONFIG["padded_vocab_size"], width),
               weight("embedding.positions.weight", CONFIG["max_position_embeddings"], width)]
    for layer in range(layers):
        block = f"block.{layer}."
        entries += norm(block + "norm1")
        entries += [weight(block + "attention.qkv.weight", 3, width, width),
                    bias(block + "attention.qkv.bias", 3, width),
                    weight(block + "attention.out.weight", width, width), bias(block + "attention.out.bias", width)]
        entries += norm(block + "norm2")
        entries += [weight(block + "mlp.up.weight", inner, width), bias(block + "mlp.up.bias", inner),
                    weight(block + "mlp.down.weight", width, inner), bias(block + "mlp.down.bias", width)]
    return entries + norm("final_norm")


def initial(tensor, shape, offset, scale):
    values = [offset + scale * ((mix(i + 65536 * tensor) >> 16) / 65536 - 0.5) for i in range(math.prod(shape))]
    return torch.tensor(values, dtype=torch.float64).reshape(shape).requires_grad_()


def training_tokens():
    """[steps][samples][seq_length + 1]: half of the tokens follow a rule, so there is something to learn."""
    vocab, state, steps = CONFIG["vocab_size"], 1, []
    for _ in range(CONFIG["train_iters"]):
        samples = []
        for _ in range(CONFIG["global_batch_size"]):
            sample = []
            for _ in range(CONFIG["seq_length"] + 1):
                state = mix(state)
                follows = sample and state & 0x10000
                sample.append((3 * sample[-1] + 7) % vocab if follows else (state >> 20) % vocab)
            samples.append(sample)
        steps.append(samples)
    return steps


def attention(x, p, block):
    batch, seq, width = x.shape
    heads = CONFIG["num_attention_heads"]
    qkv = F.linear(x, p[block + "qkv.weight"].reshape(3 * width, width), p[block + "qkv.bias"].reshape(3 * width))
    query, key, value = (part.reshape(batch, seq, heads, -1).transpose(1, 2) for part in qkv.split(width, dim=-1))
    scores = query @ key.transpose(-1, -2) / math.sqrt(width // heads)
    future = torch.ones(seq, seq, dtype=torch.bool).triu(1)
    mixed = torch.softmax(scores.masked_fill(future, float("-inf")), dim=-1) @ value
    return F.linear(mixed.transpose(1, 2).reshape(batch, seq, width), p[block + "out.weight"], p[block + "out.bias"])


def loss_of(p, ids, labels):
    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], p[name + ".gain"], p[name + ".bias"], CONFIG["norm_epsilon"])

    x = p["embedding.tokens.weight"][ids] + p["embedding.positions.weight"][: ids.shape[1]]
    for layer in range(CONFIG["num_layers"]):
        block = f"block.{layer}."
        x = x + attention(norm(x, block + "norm1"), p, block + "attention.")
        up = F.linear(norm(x, block + "norm2"), p[block + "mlp.up.weight"], p[block + "mlp.up.bias"])
        x = x + F.linear(F.gelu(up, approximate="tanh"), p[block + "mlp.down.weight"], p[block + "mlp.down.bias"])
    logits = norm(x, "final_norm") @ p["embedding.tokens.weight"].T
    return F.cross_entropy(logits[..., : CONFIG["vocab_size"]].flatten(0, 1), labels.flatten())


def learning_rate(step):
    """Megatron-LM's: linear warm-up, then cosine, in samples consumed before the step."""
    batch = CONFIG["global_batch_size"]
    done, warmup, decay = step * batch, CONFIG["lr_warmup_iters"] * batch, CONFIG["lr_decay_iters"] * batch
    top, low, first = CONFIG["lr"], CONFIG["min_lr"], CONFIG["lr_warmup_init"]
    if done <= warmup:
        return first + (top - first) * done / warmup
    return low + (top - low) * 0.5 * (1 + math.cos(math.pi * (done - warmup) / (decay - warmup)))


def adamw(groups):
    return torch.optim.AdamW(groups, betas=(CONFIG["adam_beta1"], CONFIG["adam_beta2"]), eps=CONFIG["adam_eps"])


def reference(made_by, entries, loss_of, batches=None, make_optimizer=None):
    """Ten training steps of the model whose loss is loss_of(parameters by name, ids, labels), as a golden file's dict.

    With `batches` ([steps][samples][numbers]) the loss is loss_of(parameters, all samples of a global batch): its
    divisors may be those of the whole batch. make_optimizer(parameters by name) replaces AdamW.
    """
    torch.set_num_threads(1)
    p = {name: initial(t, shape, offset, scale) for t, (name, shape, offset, scale, _) in enumerate(entries)}
    records = [{"name": name, "shape": shape, "offset": offset, "scale": scale, "decayed": decayed,
                "initial_sum": p[name].sum().item(), "initial_sum_squares": p[name].square().sum().item()}
               for name, shape, offset, scale, decayed in entries]
    groups = [{"params": [p[e[0]] for e in entries if e[4] is decayed],
               "weight_decay": CONFIG["weight_decay"] if decayed else 0.0} for decayed in (True, False)]
    adam = make_optimizer(p) if make_optimizer else adamw(groups)

    tokens = batches or training_tokens()
    micros = 1 if batches else CONFIG["global_batch_size"] // CONFIG["micro_batch_size"]
    losses, norms, rates = [], [], []
    for step, samples in enumerate(tokens):
        adam.zero_grad()
        loss = 0.0
        for micro in torch.tensor(samples).chunk(micros):
            part = loss_of(p, micro) if batches else loss_of(p, micro[:, :-1], micro[:, 1:]) / micros
            part.backward()
            loss += part.item()
        if step == 0:
            for record in records:
                record["gradient"] = p[record["name"]].grad.flatten().tolist()
        losses.append(loss)
        norms.append(torch.nn.utils.clip_grad_norm_(p.values(), CONFIG["clip_grad"]).item())
        rates.append(learning_rate(step))
        for group in adam.param_groups:
            group["lr"] = rates[-1]
        adam.step()
    for record in records:
        trained = p[record["name"]].detach()
        record["final_sum"], record["final_sum_squares"] = trained.sum().item(), trained.square().sum().item()
    return {"made_by": made_by, "initial_value": INITIAL, "config": CONFIG, "losses": losses, "grad_norms": norms,
            "learning_rates": rates, "tokens": tokens, "parameters": records}


def other_losses(named, is_decayed, loss_of_batch, batches):
    """Losses of the steps that `reference` makes, by another model: its parameters by name, and which of them decay."""
    adam = torch.optim.AdamW(
        [{"params": [value for name, value in named.items() if is_decayed(name) is decayed],
          "weight_decay": CONFIG["weight_decay"] if decayed else 0.0} for decayed in (True, False)],
        betas=(CONFIG["adam_beta1"], CONFIG["adam_beta2"]), eps=CONFIG["adam_eps"])
    losses = []
    for step, samples in enumerate(batches):
        adam.zero_grad()
        loss = loss_of_batch(samples)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(named.values(), CONFIG["clip_grad"])
        for group in adam.param_groups:
            group["lr"] = learning_rate(step)
        adam.step()
        losses.append(loss.item())
    return losses


def main():
    golden_json.write(sys.argv[1], reference("tools/reference/gpt_torch.py", parameter_list(), loss_of))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: gpt_torch.py OUTPUT.json")
    main()
