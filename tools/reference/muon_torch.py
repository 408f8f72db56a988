#!/usr/bin/env python3
"""Muon in plain PyTorch, in double precision: directions of matrices, and ten training steps of two models.

    python3 tools/reference/muon_torch.py tests/golden/muon_torch.json

Needs Debian's python3-torch. It shares no code with Trifold. `matrices` has three
steps of a wide, a tall and a square matrix. `runs` has the losses, gradient norms and checksums of the
trained parameters of the models of gpt_torch.py and llama_torch.py, with the initial parameters, tokens and rates of
those files: Muon for each projection, AdamW for embeddings, the output layer, norms and biases.

The direction is that of Jordan et al. (2024), with the momentum as a decaying mean; it is orthogonalised by Newton and
Schulz' iteration, whose coefficients are theirs, after a division by the Frobenius norm, and multiplied with a scale.
Packed projections are several matrices: the last two dims are one.
"""

import sys

import torch

import golden_json
import gpt_torch as gpt
import llama_torch as llama

EXTRA, MOMENTUM, STEPS = 0.2, 0.95, 5
SHAPES = {"wide": (5, 12), "tall": (40, 7), "square": (16, 16)}
SCALES = {
    "spectral": lambda r, c: max(r, c) ** 0.5,
    "unit_rms_norm": lambda r, c: (r / c) ** 0.5,
    "shape_scaling": lambda r, c: max(1.0, r / c) ** 0.5,
}
TABLES = ("embedding.tokens.weight", "embedding.positions.weight", "head.weight")


def orthogonal(direction):
    turned = direction.shape[0] > direction.shape[1]
    x = direction.T if turned else direction
    x = x / max(x.square().sum().sqrt().item(), 1e-7)
    for _ in range(STEPS):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.T if turned else x


class Muon:
    """Updates matrices [..., r, c]; `rest` updates all other parameters."""

    def __init__(self, matrices, weight_decay, rest=None, scale="spectral", nesterov=True):
        self.matrices, self.weight_decay, self.rest = matrices, weight_decay, rest
        self.scale, self.nesterov = SCALES[scale], nesterov
        self.momentum = [torch.zeros_like(m) for m in matrices]
        self.param_groups = [{"lr": 0.0}] + (rest.param_groups if rest else [])

    def zero_grad(self):
        for matrix in self.matrices:
            matrix.grad = None
        if self.rest:
            self.rest.zero_grad()

    def step(self):
        rate = self.param_groups[0]["lr"]
        with torch.no_grad():
            for weight, mean in zip(self.matrices, self.momentum):
                mean.mul_(MOMENTUM).add_(weight.grad, alpha=1 - MOMENTUM)
                direction = mean * MOMENTUM + weight.grad * (1 - MOMENTUM) if self.nesterov else mean
                rows, columns = weight.shape[-2:]
                parts = direction.reshape(-1, rows, columns)
                update = torch.stack([orthogonal(part) for part in parts]).reshape(weight.shape)
                weight.mul_(1 - rate * self.weight_decay)
                weight.sub_(update * (rate * EXTRA * self.scale(rows, columns)))
        if self.rest:
            self.rest.step()


def steps_of_matrix(shape):
    """Three steps with the rate 0.05 and the decay 0.1, for every scale with and without Nesterov."""
    generator = torch.Generator().manual_seed(sum(shape))

    def draw():
        return torch.randn(shape, generator=generator, dtype=torch.float32).to(torch.float64)

    first, gradients = draw(), [draw() for _ in range(3)]
    results = {}
    for scale in SCALES:
        for nesterov in (True, False):
            weight = first.clone().requires_grad_()
            muon = Muon([weight], 0.1, scale=scale, nesterov=nesterov)
            muon.param_groups[0]["lr"] = 0.05
            for gradient in gradients:
                weight.grad = gradient.clone()
                muon.step()
            results[scale + (" nesterov" if nesterov else "")] = weight.detach().flatten().tolist()
    return {"shape": list(shape), "weight": first.flatten().tolist(),
            "gradients": [gradient.flatten().tolist() for gradient in gradients], "results": results}


def run_of(entries, loss_of):
    decayed = {entry[0]: entry[4] for entry in entries}

    def make(p):
        is_matrix = {name: decayed[name] and name not in TABLES for name in p}
        groups = [{"params": [value for name, value in p.items() if not is_matrix[name] and decayed[name] is decay],
                   "weight_decay": gpt.CONFIG["weight_decay"] if decay else 0.0} for decay in (True, False)]
        return Muon([value for name, value in p.items() if is_matrix[name]], gpt.CONFIG["weight_decay"],
                    gpt.adamw(groups))

    run = gpt.reference("", entries, loss_of, make_optimizer=make)
    return {"losses": run["losses"], "grad_norms": run["grad_norms"],
            "final_sum_squares": {r["name"]: r["final_sum_squares"] for r in run["parameters"]}}


def main():
    torch.set_num_threads(1)
    matrices = {name: steps_of_matrix(shape) for name, shape in SHAPES.items()}
    runs = {"gpt": run_of(gpt.parameter_list(), gpt.loss_of)}
    llama.configure("plain")
    runs["llama"] = run_of(llama.parameter_list(), llama.loss_of)
    golden_json.write(sys.argv[1], {"made_by": "tools/reference/muon_torch.py", "matrices": matrices, "runs": runs})


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: muon_torch.py OUTPUT.json")
    main()
