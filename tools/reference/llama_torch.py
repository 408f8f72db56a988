#!/usr/bin/env python3
"""Small Llamas in PyTorch, in double precision: ten training steps of each, with which Trifold is compared.

    python3 tools/reference/llama_torch.py plain tests/golden/llama_torch.json
    python3 tools/reference/llama_torch.py scaled tests/golden/llama_scaled_torch.json
    python3 tools/reference/llama_torch.py check        # against LlamaForCausalLM; needs the package transformers

Needs Debian's python3-torch. It shares no code with Trifold; the files are as gpt_torch.py describes. `plain` is the
family as it was published: root-mean-square norms, rotary embedding of whole heads, SwiGLU, key heads shared by two
query heads, no biases, a head of its own. `scaled` has what only some members have: heads wider than width / heads, one
key head, queries and keys normalised, half of each head rotated, with the scaled angles of Llama 3.1.

Per block x += attention(norm1(x)), x += down(silu(gate) * up) of norm2(x); a final norm; logits over the first
`vocab_size` entries of the head. Numbers i and i + n/2 of the first n of a head are a pair, turned by position *
base^(-2i/n).
"""

import math
import sys

import torch
import torch.nn.functional as F

import golden_json
import gpt_torch as gpt

PLAIN = {"num_query_groups": 2, "kv_channels": 8, "ffn_hidden_size": 40, "rotary_base": 500.0, "rotary_percent": 1.0,
         "qk_layernorm": False, "rope_scaling_factor": 1.0}
SCALED = {"num_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "num_query_groups": 1, "kv_channels": 16,
          "ffn_hidden_size": 24, "rotary_base": 500000.0, "rotary_percent": 0.5, "qk_layernorm": True,
          "rope_scaling_factor": 8.0}
CONFIG = gpt.CONFIG


def configure(name):
    CONFIG.update({"plain": PLAIN, "scaled": SCALED}[name])


def parameter_list():
    """(name, shape, offset, scale, decayed) of every parameter, in the order of the file."""
    width, inner, head = CONFIG["hidden_size"], CONFIG["ffn_hidden_size"], CONFIG["kv_channels"]
    queries, keys = CONFIG["num_attention_heads"] * head, CONFIG["num_query_groups"] * head

    def weight(name, *shape):
        return (name, list(shape), 0.0, 0.5, True)

    def gain(name, size=width):
        return (name + ".gain", [size], 1.0, 0.25, False)

    entries = [weight("embedding.tokens.weight", CONFIG["padded_vocab_size"], width)]
    for layer in range(CONFIG["num_layers"]):
        block = f"block.{layer}."
        entries += [gain(block + "norm1"), weight(block + "attention.query.weight", queries, width),
                    weight(block + "attention.key_value.weight", 2, keys, width)]
        if CONFIG["qk_layernorm"]:
            entries += [gain(block + "attention.query_norm", head), gain(block + "attention.key_norm", head)]
        entries += [weight(block + "attention.out.weight", width, queries), gain(block + "norm2"),
                    weight(block + "mlp.up.weight", 2, inner, width), weight(block + "mlp.down.weight", width, inner)]
    return entries + [gain("final_norm"), weight("head.weight", CONFIG["padded_vocab_size"], width)]


def norm(x, gain):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + CONFIG["norm_epsilon"]) * gain


def frequencies():
    pairs = int(CONFIG["kv_channels"] * CONFIG["rotary_percent"]) // 2
    result = [CONFIG["rotary_base"] ** (-i / pairs) for i in range(pairs)]
    factor = CONFIG["rope_scaling_factor"]
    if factor == 1.0:
        return result
    # Llama 3.1: 8192 positions, slow below one turn in them, as before above four.
    scaled = []
    for radians in result:
        wave = 2 * math.pi / radians
        if wave < 8192 / 4:
            scaled.append(radians)
        elif wave > 8192:
            scaled.append(radians / factor)
        else:
            smooth = (8192 / wave - 1) / (4 - 1)
            scaled.append((1 - smooth) * radians / factor + smooth * radians)
    return scaled


def turned(x):
    """x [batch, heads, seq, head]."""
    pairs = len(frequencies())
    angles = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * torch.tensor(frequencies(), dtype=torch.float64)
    a, b, rest = x[..., :pairs], x[..., pairs:2 * pairs], x[..., 2 * pairs:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin(), rest], dim=-1)


def attention(x, p, block):
    batch, seq, _ = x.shape
    heads, groups, head = CONFIG["num_attention_heads"], CONFIG["num_query_groups"], CONFIG["kv_channels"]

    def by_head(weight):
        return F.linear(x, weight).reshape(batch, seq, -1, head).transpose(1, 2)

    query = by_head(p[block + "query.weight"])
    key, value = (by_head(weight) for weight in p[block + "key_value.weight"])
    if CONFIG["qk_layernorm"]:
        query, key = norm(query, p[block + "query_norm.gain"]), norm(key, p[block + "key_norm.gain"])
    query, key = turned(query), turned(key)
    key, value = (part.repeat_interleave(heads // groups, dim=1) for part in (key, value))
    scores = query @ key.transpose(-1, -2) / math.sqrt(head)
    future = torch.ones(seq, seq, dtype=torch.bool).triu(1)
    mixed = torch.softmax(scores.masked_fill(future, float("-inf")), dim=-1) @ value
    return F.linear(mixed.transpose(1, 2).reshape(batch, seq, heads * head), p[block + "out.weight"])


def logits_of(p, ids):
    x = p["embedding.tokens.weight"][ids]
    for layer in range(CONFIG["num_layers"]):
        block = f"block.{layer}."
        x = x + attention(norm(x, p[block + "norm1.gain"]), p, block + "attention.")
        gate, up = (F.linear(norm(x, p[block + "norm2.gain"]), weight) for weight in p[block + "mlp.up.weight"])
        x = x + F.linear(F.silu(gate) * up, p[block + "mlp.down.weight"])
    return F.linear(norm(x, p["final_norm.gain"]), p["head.weight"])[..., : CONFIG["vocab_size"]]


def loss_of(p, ids, labels):
    return F.cross_entropy(logits_of(p, ids).flatten(0, 1), labels.flatten())


def check():
    """The same weights in transformers' LlamaForCausalLM: largest differences of logits, gradients and ten losses."""
    from transformers import LlamaConfig, LlamaForCausalLM

    configure("plain")
    vocab = CONFIG["vocab_size"]
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=vocab, hidden_size=CONFIG["hidden_size"], intermediate_size=CONFIG["ffn_hidden_size"],
        num_hidden_layers=CONFIG["num_layers"], num_attention_heads=CONFIG["num_attention_heads"],
        num_key_value_heads=CONFIG["num_query_groups"], rms_norm_eps=CONFIG["norm_epsilon"],
        rope_theta=CONFIG["rotary_base"], max_position_embeddings=CONFIG["max_position_embeddings"],
        tie_word_embeddings=False, attn_implementation="eager")).double()
    p = {entry[0]: gpt.initial(t, *entry[1:4]) for t, entry in enumerate(parameter_list())}
    pairs = [("model.embed_tokens.weight", lambda q: q["embedding.tokens.weight"][:vocab]),
             ("lm_head.weight", lambda q: q["head.weight"][:vocab]), ("model.norm.weight", lambda q: q["final_norm.gain"])]
    for layer in range(CONFIG["num_layers"]):
        ours, theirs = f"block.{layer}.", f"model.layers.{layer}."
        for name, other, part in (
                ("norm1.gain", "input_layernorm", None), ("norm2.gain", "post_attention_layernorm", None),
                ("attention.query.weight", "self_attn.q_proj", None),
                ("attention.key_value.weight", "self_attn.k_proj", 0),
                ("attention.key_value.weight", "self_attn.v_proj", 1), ("attention.out.weight", "self_attn.o_proj", None),
                ("mlp.up.weight", "mlp.gate_proj", 0), ("mlp.up.weight", "mlp.up_proj", 1),
                ("mlp.down.weight", "mlp.down_proj", None)):
            pairs.append((theirs + other + ".weight",
                          lambda q, n=ours + name, i=part: q[n] if i is None else q[n][i]))
    named = dict(model.named_parameters())
    assert sorted(named) == sorted(name for name, _ in pairs), sorted(named)
    with torch.no_grad():
        for name, ours in pairs:
            named[name].copy_(ours(p))
    batches = [torch.tensor(samples) for samples in gpt.training_tokens()]
    ids, labels = batches[0][:, :-1], batches[0][:, 1:]

    def their_loss(samples):
        return F.cross_entropy(model(samples[:, :-1]).logits.flatten(0, 1), samples[:, 1:].flatten())

    logits, expected = logits_of(p, ids), model(ids).logits
    loss_of(p, ids, labels).backward()
    their_loss(batches[0]).backward()
    print("logits", (logits - expected).abs().max().item() / expected.abs().max().item())
    grads = {name: value.grad for name, value in p.items()}
    print("gradients", max(((ours(grads) - named[name].grad).abs().max() / named[name].grad.abs().max()).item()
                           for name, ours in pairs))
    expected = gpt.reference("", parameter_list(), loss_of)["losses"]
    losses = gpt.other_losses(named, lambda name: "norm" not in name, their_loss, batches)
    print("ten losses", max(abs(loss / other - 1) for loss, other in zip(losses, expected)))


def main():
    if sys.argv[1:] == ["check"]:
        return check()
    if len(sys.argv) != 3 or sys.argv[1] not in ("plain", "scaled"):
        sys.exit("usage: llama_torch.py plain|scaled OUTPUT.json, or llama_torch.py check")
    configure(sys.argv[1])
    golden = gpt.reference("tools/reference/llama_torch.py " + sys.argv[1], parameter_list(), loss_of)
    return golden_json.write(sys.argv[2], golden)


if __name__ == "__main__":
    main()
