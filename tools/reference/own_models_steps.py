"""Ten steps of AdamW and of SGD of the models of own_models_gradients.py, trained by PyTorch with the engine's dropout.

  pip install torch transformers
  own_models_steps.py [NAME...]   writes tests/data/own_models/steps/NAME.json for all models or those named

It trains the graphs in tests/data/own_models/gradients from the weights that they hold. NAME.json has the arrays of the
data set; for each rule the options of `trifold pretrain` that make the same run, and for each element type (f64, f32) the
losses and the gradient norms of the steps; of the trained weights in f64, the projections of own_models_gradients.py.
Samples come in the order of src/graph/data/array_source.cpp: each pass over the data has its own permutation, a function
of the seed (data/permutation.h). A step takes GLOBAL_BATCH of them, so that some steps span two passes.
"""

import io
import json
import pathlib
import sys
import zipfile

import numpy as np
import torch

import own_models_gradients as gradients
import own_models_torch as models

SAMPLES, GLOBAL_BATCH, STEPS = 20, 8, 10
# Gradients are clipped in some steps and not in others.
RULES = {
    "adam": {"lr": 0.01, "weight_decay": 0.1, "adam_beta1": 0.9, "adam_beta2": 0.95, "adam_eps": 1e-8, "clip_grad": 1.0},
    "sgd": {"lr": 0.05, "weight_decay": 0.01, "sgd_momentum": 0.9, "clip_grad": 0.6},
}
COMMON = {"seed": gradients.SEED, "global_batch_size": GLOBAL_BATCH, "micro_batch_size": 2, "train_iters": STEPS,
          "lr_decay_style": "constant", "split": "100,0,0"}


def permutation(key, count):
    """The order of `count` elements: four rounds of a Feistel network, repeated until the result is one of them."""
    half_bits = 1
    while 4**half_bits < count:
        half_bits += 1
    mask = (1 << half_bits) - 1

    def network(value):
        left, right = value >> half_bits, value & mask
        for turn in range(4):
            counter = (turn << 32) | right
            mixed = int(gradients.words(key, np.array([4 * counter], dtype=np.uint64))[0])
            left, right = right, (left ^ mixed) & mask
        return left << half_bits | right

    order = []
    for place in range(count):
        value = network(place)
        while value >= count:
            value = network(value)
        order.append(value)
    return order


def order_of_samples(seed, count, samples):
    """The samples of a run, of a data set that has `count`."""
    order = []
    while len(order) < samples:
        order += permutation(gradients.key_of(seed, f"order of arrays, pass {len(order) // count}"), count)
    return order[:samples]


def data_set(arrays, names):
    """SAMPLES samples like those of `arrays`, a batch. Reals have three digits; some labels do not count; masks have ends."""
    made = {}
    for name, array in zip(names, arrays):
        shape = (SAMPLES, *array.shape[1:])
        if array.is_floating_point():
            made[name] = (torch.randn(shape, dtype=torch.float64) * 1000).round() / 1000
        elif "mask" in name:
            lengths = torch.randint(shape[1] // 2, shape[1] + 1, (SAMPLES, 1))
            made[name] = (torch.arange(shape[1]) < lengths).long()
        else:
            made[name] = torch.randint(int(array.min()), int(array.max()) + 1, shape)
        if name == "labels":
            made[name][torch.rand(shape) < 0.2] = -100
    return made


def exported_graph(name, dtype):
    """The graph of a model with the weights of the file in the tests' data: a module, the batch it is made with, its inputs."""
    torch.manual_seed(gradients.SEED)
    model, arrays = models.MODELS[name]()
    model.to(dtype).train()
    model.load_state_dict(weights_of(models.TEST_DATA / "gradients" / f"{name}.pt2", arrays))
    arrays = tuple(array.to(dtype) if array.is_floating_point() else array for array in arrays)
    program = models.exported(model, arrays)
    names = [spec.arg.name for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
    return program.module(), arrays, names


def weights_of(path, arrays):
    """The state dictionary of a shortened file: PyTorch reads no file without example inputs."""
    content = io.BytesIO(path.read_bytes())
    with zipfile.ZipFile(content, "a") as archive:
        inputs = io.BytesIO()
        torch.save((arrays, {}), inputs)
        archive.writestr(archive.namelist()[0].split("/")[0] + "/data/sample_inputs/model.pt", inputs.getvalue())
    content.seek(0)
    return torch.export.load(content).state_dict


def distinct(module):
    """The parameters of a graph in groups that share memory: tied ones have a parameter under each name."""
    groups = {}
    for parameter in dict(module.named_parameters(remove_duplicate=False)).values():
        group = groups.setdefault(parameter.data_ptr(), [])
        if all(parameter is not other for other in group):
            group.append(parameter)
    return list(groups.values())


def rule_of(options, parameters):
    groups = [{"params": [each for each in parameters if each.dim() >= 2], "weight_decay": options["weight_decay"]},
              {"params": [each for each in parameters if each.dim() < 2], "weight_decay": 0.0}]
    if "sgd_momentum" in options:
        return torch.optim.SGD(groups, lr=options["lr"], momentum=options["sgd_momentum"])
    return torch.optim.AdamW(groups, lr=options["lr"], betas=(options["adam_beta1"], options["adam_beta2"]),
                             eps=options["adam_eps"])


def train(module, arrays, options):
    """Losses and gradient norms of the steps, which change the module."""
    groups = distinct(module)
    parameters = [group[0] for group in groups]
    rule = rule_of(options, parameters)
    order = order_of_samples(gradients.SEED, SAMPLES, STEPS * GLOBAL_BATCH)
    losses, norms = [], []
    for step in range(STEPS):
        first = step * GLOBAL_BATCH
        picked = order[first:first + GLOBAL_BATCH]
        module.zero_grad()
        loss, count = gradients.Engine(module, True, first).run(*(array[picked] for array in arrays))
        mean = loss / count
        mean.backward()
        for group in groups:
            whole = [parameter.grad for parameter in group if parameter.grad is not None]
            group[0].grad = sum(whole) if whole else None
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, options["clip_grad"]).item())
        losses.append(mean.item())
        rule.step()
    return losses, norms


def steps_of(name):
    module, example, names = exported_graph(name, torch.float64)
    torch.manual_seed(gradients.SEED)
    data = data_set(example, names)
    result = {"input." + key: {"dims": list(array.shape), "values": array.reshape(-1).tolist()} for key, array in data.items()}
    for rule, options in RULES.items():
        result[rule + ".options"] = {"optimizer": rule, **COMMON, **options}
        for kind, dtype in (("f64", torch.float64), ("f32", torch.float32)):
            module, _, _ = exported_graph(name, dtype)
            arrays = [array.to(dtype) if array.is_floating_point() else array for array in data.values()]
            losses, norms = train(module, arrays, options)
            result[f"{rule}.{kind}.losses"], result[f"{rule}.{kind}.norms"] = losses, norms
            if dtype == torch.float64:
                for key, weight in module.named_parameters(remove_duplicate=False):
                    result[f"{rule}.weight.{key}"] = gradients.projections(weight.detach().numpy())
    return result


def main(names):
    if not set(names) <= set(models.MODELS):
        sys.exit(__doc__)
    folder = models.TEST_DATA / "steps"
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or models.MODELS:
        path = folder / f"{name}.json"
        path.write_text(json.dumps(steps_of(name)).replace(', "', ',\n"') + "\n")
        print(path, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
