"""Losses and gradients of the models of own_models_torch.py as PyTorch computes them in f64, with dropout and without.

  pip install torch transformers
  own_models_gradients.py FOLDER [NAME...]   writes FOLDER/NAME.pt2, in f64, and FOLDER/NAME.npz for all models or those named
  own_models_gradients.py test-data          writes tests/data/own_models/gradients: graphs, and projections of gradients

NAME.npz has the arrays of a micro-batch by the names of the graph's inputs, and for KIND plain and dropped: KIND.loss,
KIND.count, and KIND.grad.PARAMETER. With dropout, masks are those of the engine: Philox words keyed by the seed and the
node's name, by the element within the run's samples (core/random.h). Projections are the sums of a gradient times cos(i)
and times cos(2 i + 1), over its elements i: two numbers that any wrong element changes.
"""

import json
import pathlib
import sys

import numpy as np
import torch
from torch.fx import Interpreter
from torch.nn import functional as F

import own_models_torch as models

SEED = 7
FIRST_SAMPLE = 5
WORD, LONG = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


def key_of(seed, name):
    mixed = 0xCBF29CE484222325 ^ (seed * 0x9E3779B97F4A7C15 & LONG)
    for letter in name.encode():
        mixed = (mixed ^ letter) * 0x100000001B3 & LONG
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & LONG
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & LONG
    mixed ^= mixed >> 31
    return mixed & WORD, mixed >> 32


def words(key, elements):
    """Philox4x32-10: the word of each of these elements, a numpy array."""
    counter = elements // 4
    w, x = counter & WORD, counter >> np.uint64(32)
    y = z = np.zeros_like(counter)
    low, high = key
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * w, np.uint64(0xCD9E8D57) * y
        w, x, y, z = (b >> np.uint64(32)) ^ x ^ np.uint64(low), b & WORD, (a >> np.uint64(32)) ^ z ^ np.uint64(high), a & WORD
        low, high = (low + 0x9E3779B9) & WORD, (high + 0xBB67AE85) & WORD
    return np.choose((elements % 4).astype(np.int64), [w, x, y, z])


def dropped(x, probability, node, first_sample):
    """x with the engine's dropout: the first axis is that of the samples, numbered within the run from `first_sample`."""
    elements = np.arange(x.numel(), dtype=np.uint64) + np.uint64(first_sample * (x.numel() // x.shape[0]))
    kept = words(key_of(SEED, "graph." + node), elements).astype(np.float64) >= probability * 2.0**32
    return x * torch.from_numpy(kept.reshape(x.shape)).to(x.dtype) / (1 - probability)


class Engine(Interpreter):
    """Runs the exported graph with the engine's dropout, or with none, on the samples of a run from `first_sample` on."""

    def __init__(self, module, drops, first_sample=FIRST_SAMPLE):
        super().__init__(module)
        self.drops, self.first_sample = drops, first_sample

    def run_node(self, node):
        self.node = node
        return super().run_node(node)

    def call_function(self, target, args, kwargs):
        if target is torch.ops.aten.dropout.default:
            return dropped(args[0], args[1], self.node.name, self.first_sample) if self.drops else args[0].clone()
        if target is torch.ops.aten.to.dtype and args[0].is_floating_point() and args[1].is_floating_point:
            return args[0]  # transformers computes some norms in f32; the engine computes all values in one type
        if target in (torch.ops.aten.cos.default, torch.ops.aten.sin.default):
            return target(args[0].double()).to(args[0].dtype)  # PyTorch's own for f32 can differ in the last bit
        if target is torch.ops.aten._assert_tensor_metadata.default:
            return None
        if target is torch.ops.aten.scaled_dot_product_attention.default:
            return self.attention(*args, **kwargs)
        return super().call_function(target, args, kwargs)

    def attention(self, q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
        if enable_gqa:
            k, v = (each.repeat_interleave(q.shape[1] // k.shape[1], 1) for each in (k, v))
        scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).tril().logical_not(), -torch.inf)
        if attn_mask is not None:
            scores = scores.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
        weights = torch.nan_to_num(scores.softmax(-1))
        if self.drops and dropout_p:
            weights = dropped(weights, dropout_p, self.node.name, self.first_sample)
        return weights @ v


def gradients(name, path):
    """Exports the model in f64 to `path`; returns the arrays of its inputs, and losses and gradients."""
    torch.manual_seed(SEED)
    model, arrays = models.MODELS[name]()
    model.double().train()
    arrays = tuple(array.double() if array.is_floating_point() else array for array in arrays)
    program = models.exported(model, arrays)
    torch.export.save(program, path)
    module = program.module()
    names = [spec.arg.name for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
    result = {"input." + key: array.numpy() for key, array in zip(names, arrays)}
    for kind, drops in (("plain", False), ("dropped", True)):
        module.zero_grad()
        loss, count = Engine(module, drops).run(*arrays)
        loss.backward()
        result[kind + ".loss"], result[kind + ".count"] = loss.detach().numpy(), count.numpy()
        for key, parameter in module.named_parameters():
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            result[f"{kind}.grad.{key}"] = gradient.numpy().copy()
    return result


def projections(gradient):
    elements = np.arange(gradient.size)
    flat = gradient.reshape(-1)
    return [float(flat @ np.cos(elements)), float(flat @ np.cos(2 * elements + 1)), float(np.linalg.norm(flat))]


def write_test_data(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name in models.MODELS:
        result = gradients(name, folder / f"{name}.pt2")
        models.shorten(folder / f"{name}.pt2")
        numbers = {key: float(value) for key, value in result.items() if key.endswith((".loss", ".count"))}
        numbers |= {key: projections(value) for key, value in result.items() if ".grad." in key}
        numbers |= {key: {"dims": value.shape, "values": value.reshape(-1).tolist()} for key, value in result.items()
                    if key.startswith("input.")}
        (folder / f"{name}.json").write_text(json.dumps(numbers).replace(', "', ',\n"') + "\n")


def main(arguments):
    if arguments == ["test-data"]:
        write_test_data(models.TEST_DATA / "gradients")
    elif arguments and set(arguments[1:]) <= set(models.MODELS):
        folder = pathlib.Path(arguments[0])
        folder.mkdir(parents=True, exist_ok=True)
        for name in arguments[1:] or models.MODELS:
            np.savez(folder / f"{name}.npz", **gradients(name, folder / f"{name}.pt2"))
            print(folder / f"{name}.npz", flush=True)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
