#!/usr/bin/env python3
"""DLRM in PyTorch, with which Trifold is compared: golden losses and training speed.

    python3 tools/reference/dlrm_torch.py golden tests/golden/dlrm_torch.json
    python3 tools/reference/dlrm_torch.py bench [--threads N] [--batch 2048] [--steps 30] [--max-rows N]
    python3 tools/reference/dlrm_torch.py learn --train a.csv --valid b.csv --interaction fm --wide [--seeds 1 2 3]

Needs Debian's python3-torch. It shares no code with Trifold.

The model is that of dlrm_model_torch.py. Loss: mean over the batch of the binary cross entropy of the logits; of several
labels the sum, each times its `label_weights`, 0 where a sample lacks the label (-1). All in double precision for the golden
file. Update: SGD, or Adagrad (accumulator from 0, w -= lr * g / (sqrt(sum) + eps)) on every parameter; rows that a batch does
not touch stay as they are. `weight_decay` is PyTorch's L2 penalty, of the weights outside the tables. `tables_decay`: touched
rows are multiplied by 1 - lr * this first. `ftrl` [alpha, beta, l1, l2]: tables are updated by FTRL-Proximal (McMahan et al.,
KDD 2013, algorithm 1), whose z begins, with a number's first gradient, as -beta / alpha times the number, because these do not
begin as 0.

`golden` writes for each case the configuration, the batches, the formula of the initial parameters, all ten losses, the
gradients of the first step and, after the last step, all parameters.

`bench` (dlrm_speed_torch.py) trains the Kaggle configuration of the reference implementation and prints samples per second.

`learn` trains the model of the golden file in f32 on CSV files with the header label,I1..,C1.., one decimal id a column, and
prints the AUC on --valid after each seed. Initial values are the engine's: U(-1, 1) / sqrt(rows) for vectors, 0 for weights behind
them, N(0, 2 / (in + out)) for matrices and N(0, 1 / out) for biases of the MLPs.
"""

import argparse
import sys

import torch
import torch.nn.functional as F

import dlrm_speed_torch
import golden_json
from dlrm_model_torch import model_logits, parameter_list

INITIAL = ("parameter `tensor` (its place in the list), element `i` in memory order: h = mix(i + 65536 * tensor) in"
           " 32-bit arithmetic that wraps; value = scale * ((h >> 16) / 65536 - 0.5), exact in f32 and f64."
           " mix(h): h += 0x9e3779b9; h ^= h >> 16; h *= 0x85ebca6b; h ^= h >> 13; h *= 0xc2b2ae35; h ^= h >> 16")

BASE = {"dense": 3, "embedding_dim": 4, "rows": [11, 5, 3, 17], "max_ids": [1, 3, 1, 4], "bottom": [8, 4], "top": [6, 1],
        "interaction": "dot", "self_interaction": False, "pooling": "sum", "optimizer": "sgd", "lr": 0.5, "eps": 1e-10,
        "batch": 6, "steps": 10}
CASES = {
    "dot_sgd": {},
    "self_mean_adagrad": {"self_interaction": True, "pooling": "mean", "optimizer": "adagrad", "lr": 0.05},
    "cat_sgd": {"interaction": "cat", "top": [1], "bottom": [4]},
    "cross_adagrad": {"interaction": "cross", "cross_layers": 2, "cross_rank": 3, "optimizer": "adagrad", "lr": 0.02,
                      "eps": 1e-8},
    "wide_deep_adagrad": {"interaction": "cat", "wide": True, "optimizer": "adagrad", "lr": 0.05, "weight_decay": 0.1},
    "deepfm_sgd": {"interaction": "fm", "wide": True, "pooling": "mean", "lr": 0.1},
    "deepfm_no_dense": {"interaction": "fm", "wide": True, "dense": 0, "bottom": [], "lr": 0.1},
    "dot_wide": {"wide": True, "lr": 0.2, "weight_decay": 0.05},
    "labels_dot_sgd": {"labels": 2, "tower": [3, 1], "lr": 0.3, "label_weights": [1, 0.5]},
    "labels_deepfm_adagrad": {"interaction": "fm", "wide": True, "labels": 3, "tower": [1], "optimizer": "adagrad", "lr": 0.05,
                              "label_weights": [1, 2, 0.25]},
    "mmoe_dot_adagrad": {"labels": 3, "experts": 3, "top": [6, 5, 1], "tower": [4, 1], "optimizer": "adagrad", "lr": 0.05,
                         "label_weights": [1, 1, 1]},
    "tables_decay_adagrad": {"tables_decay": 0.4, "optimizer": "adagrad", "lr": 0.05},
    "ftrl": {"ftrl": [0.3, 0.5, 0, 0], "lr": 0.2},
    "ftrl_wide_penalties": {"interaction": "cat", "wide": True, "ftrl": [0.2, 1, 0.05, 0.5], "lr": 0.1},
    "shared_adagrad": {"rows": [11, 5, 3, 11], "shares": {"3": 0}, "optimizer": "adagrad", "lr": 0.05},
    "din_dot_sgd": {"rows": [11, 5, 3, 11], "shares": {"3": 0}, "attended": [[3, 0]], "attention": [5, 1], "lr": 0.2},
    "din_cat_wide_mean": {"interaction": "cat", "wide": True, "pooling": "mean", "rows": [11, 5, 3, 11], "max_ids": [1, 3, 2, 4],
                          "shares": {"3": 0}, "attended": [[1, 2], [3, 0]], "attention": [4, 3, 1], "optimizer": "adagrad",
                          "lr": 0.05},
    "din_no_dense": {"dense": 0, "bottom": [], "interaction": "cross", "cross_layers": 1, "cross_rank": 2, "attended": [[3, 0]],
                     "attention": [1], "lr": 0.1},
    "batch_norm_sgd": {"batch_norm": True, "bottom": [8, 5, 4], "top": [6, 5, 1], "lr": 0.1},
    "batch_norm_adagrad": {"batch_norm": True, "interaction": "cat", "bottom": [7, 4], "top": [9, 6, 1], "optimizer": "adagrad", "lr": 0.05,
                           "weight_decay": 0.1},
    "mmoe_cross_wide": {"interaction": "cross", "cross_layers": 1, "cross_rank": 2, "wide": True, "labels": 2, "experts": 2,
                        "tower": [1], "lr": 0.1, "label_weights": [0.5, 2]},
}


def mix(h):
    h = (h + 0x9E3779B9) & 0xFFFFFFFF
    h = ((h ^ (h >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    h = ((h ^ (h >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return h ^ (h >> 16)


def initial(config):
    values = {}
    for tensor, (name, shape, scale) in enumerate(parameter_list(config)):
        count = 1
        for extent in shape:
            count *= extent
        numbers = [scale * ((mix(i + 65536 * tensor) >> 16) / 65536 - 0.5) for i in range(count)]
        values[name] = torch.tensor(numbers, dtype=torch.float64).reshape(shape).requires_grad_()
    return values


def make_batches(config):
    """Batches of random numbers that are exact in f32; bags of 0 to max_ids ids with repetitions."""
    state = 12345

    def below(n):
        nonlocal state
        state = mix(state)
        return (state >> 8) % n

    batches = []
    for _ in range(config["steps"]):
        size = config["batch"]
        lengths = [[1 if hot == 1 else below(hot + 1) for _ in range(size)] for hot in config["max_ids"]]
        ids = [[below(rows) for _ in range(sum(of))] for rows, of in zip(config["rows"], lengths)]
        dense = [below(64) / 16 - 1 for _ in range(size * config["dense"])]
        if config.get("labels", 1) == 1:
            labels = [below(2) for _ in range(size)]
        else:
            labels = [below(3) - 1 for _ in range(size * config["labels"])]
        batches.append({"dense": dense, "labels": labels, "lengths": lengths, "ids": ids})
    return batches


def logits(config, p, batch):
    dense = torch.tensor(batch["dense"], dtype=torch.float64).reshape(config["batch"], config["dense"])
    bags = [(torch.tensor(ids, dtype=torch.int64), torch.cumsum(torch.tensor([0] + lengths[:-1]), 0))
            for lengths, ids in zip(batch["lengths"], batch["ids"])]
    return model_logits(config, p, dense, bags)


def loss_of(config, result, batch):
    labels = torch.tensor(batch["labels"], dtype=torch.float64)
    if config.get("labels", 1) == 1:
        return F.binary_cross_entropy_with_logits(result, labels)
    labels = labels.reshape(config["batch"], config["labels"])
    weights = torch.tensor(config["label_weights"], dtype=torch.float64) * (labels >= 0)
    losses = F.binary_cross_entropy_with_logits(result, labels.clamp(min=0), weight=weights, reduction="sum")
    return losses / config["batch"]


def flat_list(tensor):
    return tensor.detach().reshape(-1).tolist()


def ftrl_step(rule, w, z, n):
    """Of a table and its state, by its gradient."""
    alpha, beta, l1, l2 = rule
    g = w.grad
    touched = g != 0
    with torch.no_grad():
        z[touched & (n == 0)] = -beta / alpha * w[touched & (n == 0)]
        sigma = (torch.sqrt(n + g * g) - torch.sqrt(n)) / alpha
        z += torch.where(touched, g - sigma * w, torch.zeros_like(g))
        n += g * g
        new = torch.where(z.abs() <= l1, torch.zeros_like(z), -(z - torch.sign(z) * l1) / ((beta + torch.sqrt(n)) / alpha + l2))
        w.copy_(torch.where(touched, new, w))


def touched_rows(batch, p):
    return [(p[f"tables.{t}"], sorted(set(ids))) for t, ids in enumerate(batch["ids"])]


def run_case(changes):
    config = {**BASE, **changes}
    p = initial(config)
    batches = make_batches(config)
    kept = [name for name in p if name.startswith("tables.") or name.endswith("bias") or ".norm." in name]
    decays = [value for name, value in p.items() if name not in kept]
    others = [p[name] for name in kept]
    tables = [value for name, value in p.items() if name.startswith("tables.")]
    if "ftrl" in config:
        others = [value for name, value in p.items() if name.endswith("bias")]
        states = [(torch.zeros_like(table), torch.zeros_like(table)) for table in tables]
    groups = [{"params": decays, "weight_decay": config.get("weight_decay", 0)}, {"params": others}]
    if config["optimizer"] == "sgd":
        optimizer = torch.optim.SGD(groups, lr=config["lr"])
    else:
        optimizer = torch.optim.Adagrad(groups, lr=config["lr"], eps=config["eps"])
    losses = []
    statistics = {}
    first_gradients = {}
    for batch in batches:
        for value in p.values():
            value.grad = None
        loss = loss_of(config, logits(config, {**p, "statistics": statistics}, batch), batch)
        loss.backward()
        losses.append(loss.item())
        if not first_gradients:
            first_gradients = {name: flat_list(value.grad) for name, value in p.items()}
        if "ftrl" in config:
            for table, state in zip(tables, states):
                ftrl_step(config["ftrl"], table, *state)
        if "tables_decay" in config:
            with torch.no_grad():
                for table, rows in touched_rows(batch, p):
                    table[rows] *= 1 - config["lr"] * config["tables_decay"]
        optimizer.step()
    parameters = [{"name": name, "shape": shape, "scale": scale, "first_gradient": first_gradients[name],
                   "after": flat_list(p[name])} for name, shape, scale in parameter_list(config)]
    case = {"config": config, "batches": batches, "losses": losses, "parameters": parameters}
    if statistics:
        case["statistics"] = {name: [flat_list(mean), flat_list(variance)] for name, (mean, variance) in statistics.items()}
    return case


def golden(path):
    cases = {name: run_case(changes) for name, changes in CASES.items()}
    golden_json.write(path, {"torch": torch.__version__, "initial": INITIAL, "cases": cases})


def read_clicks(path):
    """(log(1 + I) [n, dense], ids [n, tables], labels [n])"""
    with open(path, encoding="ascii") as file:
        header = file.readline().strip().split(",")
        rows = torch.tensor([[float(x or 0) for x in line.split(",")] for line in file])
    dense = sum(name.startswith("I") for name in header)
    return torch.log1p(rows[:, 1:1 + dense].clamp(min=0)), rows[:, 1 + dense:].long(), rows[:, 0]


def learned(config):
    values = {}
    for name, shape, _ in parameter_list(config):
        if name.startswith("tables."):
            value = (2 * torch.rand(shape) - 1) * shape[0] ** -0.5
            if config["wide"]:
                value[:, -1] = 0
        elif name == "wide.weight" or name.startswith("cross.") and name.endswith("bias"):
            value = torch.zeros(shape)
        else:
            value = torch.randn(shape) * ((2 / sum(shape)) ** 0.5 if len(shape) == 2 else shape[0] ** -0.5)
        values[name] = value.requires_grad_()
    return values


def area_under_curve(scores, labels):
    """Equal scores count half."""
    _, place, counts = torch.unique(scores, return_inverse=True, return_counts=True)
    ranks = (torch.cumsum(counts, 0) - (counts - 1) / 2)[place].double()
    clicked = labels > 0.5
    positive, negative = int(clicked.sum()), int((~clicked).sum())
    return (ranks[clicked].sum().item() - positive * (positive + 1) / 2) / (positive * negative)


def learn(options):
    if options.threads:
        torch.set_num_threads(options.threads)
    train, valid = read_clicks(options.train), read_clicks(options.valid)
    config = {"dense": train[0].shape[1], "embedding_dim": options.embedding_dim, "rows": options.rows, "bottom": options.bottom,
              "top": options.top, "interaction": options.interaction, "self_interaction": False, "wide": options.wide,
              "pooling": "sum", "cross_layers": options.cross_layers if options.interaction == "cross" else 0,
              "cross_rank": options.cross_rank}
    areas = []
    for seed in options.seeds:
        torch.manual_seed(seed)
        p = learned(config)
        optimizer = torch.optim.Adagrad(p.values(), lr=options.lr, eps=1e-8)
        for _ in range(options.epochs):
            for chosen in torch.randperm(len(train[2])).split(options.batch):
                optimizer.zero_grad()
                result = model_logits(config, p, train[0][chosen], [(ids, torch.arange(len(chosen))) for ids in train[1][chosen].T])
                F.binary_cross_entropy_with_logits(result, train[2][chosen]).backward()
                optimizer.step()
        with torch.no_grad():
            scores = model_logits(config, p, valid[0], [(ids, torch.arange(len(valid[2]))) for ids in valid[1].T])
        areas.append(area_under_curve(scores, valid[2]))
        print(f"seed {seed}: AUC {areas[-1]:.5f}", flush=True)
    print(f"{options.interaction}{' wide' if options.wide else ''}: mean AUC {sum(areas) / len(areas):.5f} of {len(areas)} seeds")


def numbers(text):
    return [int(word) for word in text.split("-")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("golden").add_argument("path")
    speed = commands.add_parser("bench")
    speed.add_argument("--threads", type=int, default=0)
    speed.add_argument("--batch", type=int, default=2048)
    speed.add_argument("--steps", type=int, default=30)
    speed.add_argument("--zipf", type=float, default=1.05)
    speed.add_argument("--batches", type=int, default=64, help="different batches, met in turn")
    speed.add_argument("--write", metavar="FILE", help="write their samples as MLPerf records")
    speed.add_argument("--max-rows", type=int, default=1 << 30, help="cut the tables, where memory is short")
    speed.add_argument("--also", metavar="COMMAND", help="run this afterwards")
    area = commands.add_parser("learn")
    area.add_argument("--train", required=True)
    area.add_argument("--valid", required=True)
    area.add_argument("--rows", type=numbers, required=True)
    area.add_argument("--interaction", choices=["dot", "cat", "cross", "fm"], default="dot")
    area.add_argument("--wide", action="store_true")
    area.add_argument("--embedding-dim", type=int, default=16)
    area.add_argument("--bottom", type=numbers, default=[64, 16])
    area.add_argument("--top", type=numbers, default=[64, 32, 1])
    area.add_argument("--cross-layers", type=int, default=2)
    area.add_argument("--cross-rank", type=int, default=16)
    area.add_argument("--batch", type=int, default=256)
    area.add_argument("--epochs", type=int, default=3)
    area.add_argument("--lr", type=float, default=0.05)
    area.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    area.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    if options.command == "golden":
        golden(options.path)
    elif options.command == "learn":
        learn(options)
    else:
        dlrm_speed_torch.bench(options)


if __name__ == "__main__":
    sys.exit(main())
