"""The model of dlrm_torch.py: a DLRM and its relatives as functions of a configuration and named parameters.

DLRM: arXiv 1906.00091; DCNv2: arXiv 2008.13535. Bottom MLP over the dense numbers, ReLU after every layer; one bag of
embeddings for each table, summed or averaged, zeros where it is empty; then
    dot   [x, pairs], pairs = the strict lower triangle of T T', T = rows [x, e1 .. eF]: (1,0), (2,0), (2,1), (3,0) ...
          (`self_interaction`: with the diagonal: (0,0), (1,0), (1,1) ...)
    cat   [x, e1 .. eF]
    cross x0 = [x, e1 .. eF]; x <- x0 * (W (V x) + b) + x, `cross_layers` times, V of rank `cross_rank`
    fm    as cat, and the sum of the pairs is added to the logit
and the top MLP, ReLU after every layer but the last, which gives one logit. `wide`: rows of a table have one number more, a
weight, of which each bag gives a sum or mean as of its vectors; these of all tables and a linear function of the dense numbers
(wide.weight) are added to the logit. Wide & Deep (arXiv 1606.07792) is cat with it, DeepFM (arXiv 1703.04247) fm with it.
`labels` L: a logit for each; a tower of its own (`tower`, an MLP like the top's) above the hidden layers of the top MLP or,
with `experts`, above the mean of so many such stacks by the softmax of a linear function of the top's input (MMoE: Ma et al.,
KDD 2018); as many weights behind a vector. `shares` {t: u}: the ids of table t are rows of table u, and t has none. `attended` [[t, c]]: the bag of t is
pooled by attention to the vector of c (DIN: arXiv 1706.06978): the sum of its vectors h, each times an MLP (`attention`, like the top's) of
[c, h, c - h, c * h]; its weights are added up. `batch_norm`: the hidden layers of the two MLPs are normalised over the batch before
their ReLU (<layer>.norm), as torch.nn.BatchNorm1d does, and have no bias.
"""

import torch
import torch.nn.functional as F


def interaction_width(config):
    dim, vectors = config["embedding_dim"], len(config["rows"]) + (1 if config["dense"] else 0)
    if config["interaction"] == "dot":
        return dim + vectors * (vectors + (1 if config["self_interaction"] else -1)) // 2
    return dim * vectors


def parameter_list(config):
    """(name, shape, scale) of every parameter, in the order of the file. Linear weights are [outputs, inputs]."""
    labels = config.get("labels", 1)
    columns = config["embedding_dim"] + (labels if config.get("wide") else 0)
    entries = [(f"tables.{t}", [rows, columns], 1.5) for t, rows in enumerate(config["rows"]) if owner(config, t) == t]

    def mlp(name, inputs, widths):
        for layer, width in enumerate(widths):
            entries.append((f"{name}.{layer}.weight", [width, inputs], 1.5))
            if not config.get("batch_norm") or layer + 1 == len(widths):
                entries.append((f"{name}.{layer}.bias", [width], 0.5))
            else:
                entries.append((f"{name}.{layer}.norm.weight", [width], 3.0))
                entries.append((f"{name}.{layer}.norm.bias", [width], 0.5))
            inputs = width

    mlp("bottom", config["dense"], config["bottom"])
    width = interaction_width(config)
    for layer in range(config.get("cross_layers", 0)):
        entries.append((f"cross.{layer}.v", [config["cross_rank"], width], 0.75))
        entries.append((f"cross.{layer}.w", [width, config["cross_rank"]], 0.75))
        entries.append((f"cross.{layer}.bias", [width], 0.5))
    if labels == 1:
        mlp("top", width, config["top"])
    else:
        hidden = config["top"][:-1]
        for stack in stacks_of(config):
            mlp(stack, width, hidden)
        for label in range(labels):
            if config.get("experts"):
                entries.append((f"gate.y{label}.weight", [config["experts"], width], 1.5))
            mlp(f"tower.y{label}", hidden[-1], config["tower"])
    for bag, _ in config.get("attended", []):
        mlp(f"attention.{bag}", 4 * config["embedding_dim"], config["attention"])
    if config.get("wide") and config["dense"]:
        entries.append(("wide.weight", [labels, config["dense"]], 1.5))
    return entries


def owner(config, t):
    return config.get("shares", {}).get(str(t), t)


def attended_bag(config, p, t, candidate, ids, starts):
    dim = config["embedding_dim"]
    ends = starts.tolist()[1:] + [len(ids)]
    rows = []
    for sample, (begin, end) in enumerate(zip(starts.tolist(), ends)):
        bag = p[f"tables.{owner(config, t)}"][ids[begin:end]]
        h = bag[:, :dim]
        c = candidate[sample].expand_as(h)
        a = mlp(p, f"attention.{t}", torch.cat([c, h, c - h, c * h], dim=1), len(config["attention"]), False)
        rows.append(torch.cat([(a * h).sum(0), bag[:, dim:].sum(0)]))
    return torch.stack(rows)


def stacks_of(config):
    return [f"expert.{e}" for e in range(config["experts"])] if config.get("experts") else ["top"]


def mlp(p, name, x, layers, last_relu):
    for layer in range(layers):
        x = F.linear(x, p[f"{name}.{layer}.weight"], p.get(f"{name}.{layer}.bias"))
        if f"{name}.{layer}.norm.weight" in p:
            norm = f"{name}.{layer}.norm"
            mean, variance = p["statistics"].setdefault(norm, (torch.zeros(x.shape[1], dtype=x.dtype), torch.ones(x.shape[1], dtype=x.dtype)))
            x = F.batch_norm(x, mean, variance, p[norm + ".weight"], p[norm + ".bias"], training=True)
        if last_relu or layer + 1 < layers:
            x = F.relu(x)
    return x


def model_logits(config, p, dense, bags):
    """Of `dense` [batch, numbers] and a pair (ids, where each sample's begin) for every table."""
    dim = config["embedding_dim"]
    vectors = []
    first_order = 0
    second_order = 0
    if config["dense"]:
        vectors.append(mlp(p, "bottom", dense, len(config["bottom"]), True))
        if config.get("wide"):
            first_order = F.linear(dense, p["wide.weight"])
    attended = dict(config.get("attended", []))
    pooled = [None if t in attended else F.embedding_bag(ids, p[f"tables.{owner(config, t)}"], starts, mode=config["pooling"])
              for t, (ids, starts) in enumerate(bags)]
    for t, (ids, starts) in enumerate(bags):
        bag = attended_bag(config, p, t, pooled[attended[t]][:, :dim], ids, starts) if t in attended else pooled[t]
        vectors.append(bag[:, :dim])
        if config.get("wide"):
            first_order = first_order + bag[:, dim:]
    flat = torch.cat(vectors, dim=1)
    if config["interaction"] == "dot":
        stack = torch.stack(vectors, dim=1)
        products = stack @ stack.transpose(1, 2)
        rows, columns = torch.tril_indices(len(vectors), len(vectors), 0 if config["self_interaction"] else -1)
        flat = torch.cat([vectors[0], products[:, rows, columns]], dim=1)
    elif config["interaction"] == "fm":
        stack = torch.stack(vectors, dim=1)  # (Rendle, 2010): half of the square of the sum minus the sum of the squares
        second_order = 0.5 * (stack.sum(1) ** 2 - (stack ** 2).sum(1)).sum(1, keepdim=True)
    elif config["interaction"] == "cross":
        cross = flat
        for layer in range(config["cross_layers"]):
            inner = F.linear(F.linear(cross, p[f"cross.{layer}.v"]), p[f"cross.{layer}.w"], p[f"cross.{layer}.bias"])
            cross = flat * inner + cross
        flat = cross
    return (head(config, p, flat) + first_order + second_order).squeeze(1)


def head(config, p, x):
    if config.get("labels", 1) == 1:
        return mlp(p, "top", x, len(config["top"]), False)
    stacks = torch.stack([mlp(p, stack, x, len(config["top"]) - 1, True) for stack in stacks_of(config)], dim=1)
    columns = []
    for label in range(config["labels"]):
        shared = stacks[:, 0]
        if config.get("experts"):
            gate = torch.softmax(F.linear(x, p[f"gate.y{label}.weight"]), dim=1)
            shared = (gate.unsqueeze(2) * stacks).sum(1)
        columns.append(mlp(p, f"tower.y{label}", shared, len(config["tower"]), False))
    return torch.cat(columns, dim=1)
