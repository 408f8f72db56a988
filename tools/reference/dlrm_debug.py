"""Writes tests/golden/dlrm_debug.json: the debug run printed in the README of facebookresearch/dlrm (MIT licence).

The README prints, with five digits, the initial parameters and three batches of a tiny DLRM, and the loss of each step.
This script keeps those numbers and adds the results of plain arithmetic in double precision: the losses, and the
parameters after the last step. They agree with the printed losses to 5e-6, the rounding of the latter.

usage: dlrm_debug.py PRINTED.json    with the printed numbers: tables, bottom_weights, bottom_bias, top_weights, top_bias,
                                     dense, indices, targets, printed_losses, lr
"""
import json
import math
import pathlib
import sys

from golden_json import text_of


def dense_layer(x, w, b, activation):
    z = [sum(wi * xi for wi, xi in zip(row, x)) + bi for row, bi in zip(w, b)]
    return [max(0.0, v) if activation == "relu" else 1 / (1 + math.exp(-v)) for v in z]


def backward(dy, x, y, w, activation, gw, gb):
    dz = [g * ((1.0 if v > 0 else 0.0) if activation == "relu" else v * (1 - v)) for g, v in zip(dy, y)]
    for i, g in enumerate(dz):
        gb[i] += g
        for j, v in enumerate(x):
            gw[i][j] += g * v
    return [sum(dz[i] * w[i][j] for i in range(len(dz))) for j in range(len(x))]


def zeros_like(value):
    return [zeros_like(v) for v in value] if isinstance(value, list) else 0.0


def descend(value, gradient, lr):
    for i, v in enumerate(value):
        if isinstance(v, list):
            descend(v, gradient[i], lr)
        else:
            value[i] -= lr * gradient[i]


def sample_pass(p, g, dense, bags, target, count):
    """Adds the gradient of (p - t)^2 / count to g and returns the squared error."""
    ys = [dense]
    for w, b in zip(p["bottom_weights"], p["bottom_bias"]):
        ys.append(dense_layer(ys[-1], w, b, "relu"))
    width = len(ys[-1])
    vectors = [ys[-1]] + [[sum(table[i][c] for i in bag) for c in range(width)]
                          for table, bag in zip(p["tables"], bags)]
    pairs = [(i, j) for i in range(len(vectors)) for j in range(i)]
    x = list(vectors[0]) + [sum(a * b for a, b in zip(vectors[i], vectors[j])) for i, j in pairs]
    ts = [x]
    kinds = ["relu"] * (len(p["top_weights"]) - 1) + ["sigmoid"]
    for w, b, kind in zip(p["top_weights"], p["top_bias"], kinds):
        ts.append(dense_layer(ts[-1], w, b, kind))
    error = ts[-1][0] - target
    dy = [2 * error / count]
    for k in reversed(range(len(kinds))):
        dy = backward(dy, ts[k], ts[k + 1], p["top_weights"][k], kinds[k], g["top_weights"][k], g["top_bias"][k])
    dv = zeros_like(vectors)
    dv[0] = list(dy[:width])
    for (i, j), d in zip(pairs, dy[width:]):
        for c in range(width):
            dv[i][c] += d * vectors[j][c]
            dv[j][c] += d * vectors[i][c]
    for table, bag, d in zip(g["tables"], bags, dv[1:]):
        for i in bag:
            for c in range(width):
                table[i][c] += d[c]
    dy = dv[0]
    for k in reversed(range(len(p["bottom_weights"]))):
        dy = backward(dy, ys[k], ys[k + 1], p["bottom_weights"][k], "relu", g["bottom_weights"][k], g["bottom_bias"][k])
    return error * error


def main():
    printed = json.loads(pathlib.Path(sys.argv[1]).read_text())
    names = ["tables", "bottom_weights", "bottom_bias", "top_weights", "top_bias"]
    p = json.loads(json.dumps({name: printed[name] for name in names}))
    losses = []
    for dense, indices, targets in zip(printed["dense"], printed["indices"], printed["targets"]):
        g = {name: zeros_like(p[name]) for name in names}
        loss = 0.0
        for s, target in enumerate(targets):
            loss += sample_pass(p, g, dense[s], [bags[s] for bags in indices], target, len(targets))
        losses.append(loss / len(targets))
        descend([p[name] for name in names], [g[name] for name in names], printed["lr"])
    for loss, expected in zip(losses, printed["printed_losses"]):
        assert abs(loss - expected) < 5e-6, (loss, expected)
    golden = {"lr": printed["lr"], "initial": {name: printed[name] for name in names},
              "batches": [{"dense": d, "indices": i, "targets": t} for d, i, t in
                          zip(printed["dense"], printed["indices"], printed["targets"])],
              "printed_losses": printed["printed_losses"], "losses": losses, "final": p}
    path = pathlib.Path(__file__).parents[2] / "tests/golden/dlrm_debug.json"
    path.write_text(text_of(golden) + "\n")


if __name__ == "__main__":
    main()
