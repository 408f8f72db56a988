#!/usr/bin/env python3
"""Twenty steps of each update rule, made by PyTorch's optimizers in double precision.

    python3 tools/reference/optimizers_torch.py tests/golden/optimizers_torch.json

Needs Debian's python3-torch. PyTorch has no LAMB and no LARS: their steps are written out here. LAMB is that of its
paper (arXiv 1904.00962, algorithm 2) with bias correction, the weight decay in the direction, and no ratio without
decay. LARS (arXiv 1708.03888) has the rate of the tensor inside the momentum and the rate 1 without decay, as MLPerf
has it. Weights and gradients are exact in f32. Every rule updates two tensors, one with weight decay and one without;
the fifth gradient of each is always zero, and for LAMB and LARS a third tensor starts at zero, so that its norm is 0.
"""

import sys

import torch

import golden_json

STEPS, SIZE = 20, 11
RULES = {
    "adam": {"lr": 0.01, "adam_beta1": 0.9, "adam_beta2": 0.95, "adam_eps": 1e-8},
    "lamb": {"lr": 0.02, "adam_beta1": 0.9, "adam_beta2": 0.99, "adam_eps": 1e-6},
    "sgd": {"lr": 0.05, "sgd_momentum": 0.9},
    "sgd_plain": {"lr": 0.05, "sgd_momentum": 0.0},
    "adagrad": {"lr": 0.1, "adagrad_eps": 1e-10},
    "lars": {"lr": 0.5, "sgd_momentum": 0.9, "lars_eta": 0.1, "lars_eps": 1e-3},
}
DECAYS = {"decayed": 0.1, "plain": 0.0}


def in_f32(tensor):
    return tensor.to(torch.float32).to(torch.float64)


class Lamb:
    def __init__(self, groups, lr, betas, eps):
        self.groups, self.lr, self.betas, self.eps, self.step_count = groups, lr, betas, eps, 0
        self.state = {g["params"][0]: (torch.zeros(SIZE, dtype=torch.float64), torch.zeros(SIZE, dtype=torch.float64))
                      for g in groups}

    def step(self):
        self.step_count += 1
        for group in self.groups:
            weight, decay = group["params"][0], group["weight_decay"]
            first, second = self.state[weight]
            with torch.no_grad():
                first.mul_(self.betas[0]).add_(weight.grad, alpha=1 - self.betas[0])
                second.mul_(self.betas[1]).add_(weight.grad.square(), alpha=1 - self.betas[1])
                m_hat = first / (1 - self.betas[0] ** self.step_count)
                v_hat = second / (1 - self.betas[1] ** self.step_count)
                direction = m_hat / (v_hat.sqrt() + self.eps) + decay * weight
                norms = weight.norm(), direction.norm()
                ratio = norms[0] / norms[1] if decay != 0 and all(n > 0 for n in norms) else 1.0
                weight -= self.lr * ratio * direction


class Lars:
    def __init__(self, groups, lr, momentum, eta, eps):
        self.groups, self.lr, self.momentum, self.eta, self.eps = groups, lr, momentum, eta, eps
        self.state = {g["params"][0]: torch.zeros(SIZE, dtype=torch.float64) for g in groups}

    def step(self):
        for group in self.groups:
            weight, decay = group["params"][0], group["weight_decay"]
            velocity = self.state[weight]
            with torch.no_grad():
                size, slope = weight.norm(), weight.grad.norm()
                exempt = decay == 0 or size == 0 or slope == 0
                local = 1.0 if exempt else self.eta * size / (slope + decay * size + self.eps)
                velocity.mul_(self.momentum).add_(self.lr * local * (weight.grad + decay * weight))
                weight -= velocity


def optimizer(name, rule, groups):
    if name == "adam":
        return torch.optim.AdamW(groups, lr=rule["lr"], betas=(rule["adam_beta1"], rule["adam_beta2"]),
                                 eps=rule["adam_eps"])
    if name == "lamb":
        return Lamb(groups, rule["lr"], (rule["adam_beta1"], rule["adam_beta2"]), rule["adam_eps"])
    if name == "lars":
        return Lars(groups, rule["lr"], rule["sgd_momentum"], rule["lars_eta"], rule["lars_eps"])
    if name == "adagrad":
        return torch.optim.Adagrad(groups, lr=rule["lr"], eps=rule["adagrad_eps"])
    return torch.optim.SGD(groups, lr=rule["lr"], momentum=rule["sgd_momentum"])


def case(name, rule):
    decays = dict(DECAYS, zero=0.1) if name in ("lamb", "lars") else DECAYS
    weights = {key: in_f32(torch.randn(SIZE, dtype=torch.float64) * (key != "zero")) for key in decays}
    starts = {key: weight.tolist() for key, weight in weights.items()}
    gradients = {key: in_f32(torch.randn(STEPS, SIZE, dtype=torch.float64)) for key in decays}
    groups = [{"params": [weights[key].requires_grad_()], "weight_decay": decay} for key, decay in decays.items()]
    rule_steps = optimizer(name, rule, groups)
    after = {key: [] for key in decays}
    for key in decays:
        gradients[key][:, 4] = 0
    for step in range(STEPS):
        for key, weight in weights.items():
            weight.grad = gradients[key][step].clone()
        rule_steps.step()
        for key, weight in weights.items():
            after[key] += weight.detach().tolist()
    tensors = [{"name": key, "weight_decay": decay, "start": starts[key],
                "gradient": gradients[key].flatten().tolist(), "after": after[key]} for key, decay in decays.items()]
    return {"name": name, **rule, "tensors": tensors}


def main():
    torch.set_num_threads(1)
    torch.manual_seed(3)
    golden_json.write(sys.argv[1], {"made_by": "tools/reference/optimizers_torch.py", "steps": STEPS, "size": SIZE,
                                    "rules": [case(name, rule) for name, rule in RULES.items()]})


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: optimizers_torch.py OUTPUT.json")
    main()
