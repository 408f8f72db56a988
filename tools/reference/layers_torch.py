#!/usr/bin/env python3
"""Small inputs, outputs and gradients of single operations, made by PyTorch in double precision.

    python3 tools/reference/layers_torch.py tests/golden/layers_torch.json

Needs Debian's python3-torch. Every case is a list of named tensors; `dy` is the incoming gradient and `dNAME` the
resulting gradient of NAME. Numbers that are not tensors (epsilon, head count ...) are tensors of shape [].
"""

import math
import sys

import torch
import torch.nn.functional as F

import golden_json

DOUBLE = torch.float64


def leaf(*shape, scale=1.0, offset=0.0):
    return (torch.randn(*shape, dtype=DOUBLE) * scale + offset).requires_grad_()


def layer_norm():
    x, gain, bias, eps = leaf(5, 7, scale=2.0, offset=0.5), leaf(7, offset=1.0), leaf(7), 1e-5
    y = F.layer_norm(x, [7], gain, bias, eps)
    dy = torch.randn_like(y)
    y.backward(dy)
    mean = x.mean(-1)
    rstd = 1 / torch.sqrt((x - mean[:, None]).square().mean(-1) + eps)
    return {"x": x, "gain": gain, "bias": bias, "eps": eps, "y": y, "mean": mean, "rstd": rstd, "dy": dy,
            "dx": x.grad, "dgain": gain.grad, "dbias": bias.grad}


def gelu():
    x = torch.tensor([-40.0, -6.0, -1.0, -1e-3, 0.0, 1e-3, 0.5, 1.0, 3.0, 6.0, 40.0], dtype=DOUBLE).requires_grad_()
    y = F.gelu(x, approximate="tanh")
    dy = torch.randn_like(y)
    y.backward(dy)
    return {"x": x, "y": y, "dy": dy, "dx": x.grad}


def attention(batch, seq, heads, kv_heads, width):
    """qkv [batch * seq, (heads + 2 kv_heads) * width]: a row holds all query, then key, then value heads."""
    qkv = leaf(batch * seq, (heads + 2 * kv_heads) * width)
    parts = qkv.reshape(batch, seq, -1, width).transpose(1, 2).split([heads, kv_heads, kv_heads], dim=1)
    query, key, value = parts[0], *(part.repeat_interleave(heads // kv_heads, dim=1) for part in parts[1:])
    scores = query @ key.transpose(-1, -2) / math.sqrt(width)
    scores = scores.masked_fill(torch.ones(seq, seq, dtype=torch.bool).triu(1), float("-inf"))
    out = (torch.softmax(scores, -1) @ value).transpose(1, 2).reshape(batch * seq, heads * width)
    dout = torch.randn_like(out)
    out.backward(dout)
    return {"batch": batch, "seq": seq, "heads": heads, "kv_heads": kv_heads, "head_dim": width, "qkv": qkv, "out": out,
            "lse": torch.logsumexp(scores, -1), "dout": dout, "dqkv": qkv.grad}


def cross_entropy():
    """Columns from `vocab` on are padding: large on purpose, and without a part in the loss."""
    vocab, rows = 6, 4
    logits = leaf(rows, 8, scale=3.0)
    with torch.no_grad():
        logits[:, vocab:] = 50.0
    labels, weight = torch.tensor([0, 5, 2, 3]), torch.tensor([1.0, 0.5, 0.0, 2.0], dtype=DOUBLE)
    loss = F.cross_entropy(logits[:, :vocab], labels, reduction="none")
    (loss * weight).sum().backward()
    return {"logits": logits, "labels": labels.to(DOUBLE), "weight": weight, "vocab": vocab, "loss": loss,
            "dlogits": logits.grad}


def adamw():
    """Three updates of one tensor; gradient row s belongs to update s. The fifth gradient is always zero."""
    rule = {"lr": 0.01, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}
    p, gradient = leaf(5), torch.randn(3, 5, dtype=DOUBLE)
    gradient[:, 4] = 0
    start, after = p.detach().clone(), []
    adam = torch.optim.AdamW([p], lr=rule["lr"], betas=(rule["beta1"], rule["beta2"]), eps=rule["eps"],
                             weight_decay=rule["weight_decay"])
    for row in gradient:
        p.grad = row.clone()
        adam.step()
        after.append(p.detach().clone())
    state = adam.state[p]
    return {**rule, "p": start, "gradient": gradient, "p_after": torch.stack(after), "m": state["exp_avg"],
            "v": state["exp_avg_sq"]}


def plain(tensors):
    tensors = {name: torch.as_tensor(value, dtype=DOUBLE).detach() for name, value in tensors.items()}
    return [{"name": name, "shape": list(t.shape), "values": t.flatten().tolist()} for name, t in tensors.items()]


def main():
    torch.set_num_threads(1)
    torch.manual_seed(2)
    cases = {"layer_norm": layer_norm(), "gelu": gelu(), "attention": attention(2, 5, 2, 2, 4),
             "attention_grouped": attention(1, 6, 4, 2, 4), "cross_entropy": cross_entropy(), "adamw": adamw()}
    golden_json.write(sys.argv[1], {"made_by": "tools/reference/layers_torch.py",
                                    "cases": {name: plain(tensors) for name, tensors in cases.items()}})


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: layers_torch.py OUTPUT.json")
    main()
