"""How many labels of the models' cross entropies are among the K likeliest classes, as PyTorch counts them in f64 without dropout.

  pip install torch
  own_models_classes.py    writes tests/data/own_models/classes.json, for the files and inputs of tests/data/own_models/gradients

For each model {NODE: {"labels": number that is not ignored, "right": [number among the 1, 2, ... 5 likeliest classes]}}.
"""

import io
import json
import zipfile

import torch

import own_models_gradients as gradients
import own_models_torch as models

MOST = 5


class Counter(gradients.Engine):
    """Counts at each cross entropy."""

    def __init__(self, module):
        super().__init__(module, drops=False)
        self.counts = {}

    def call_function(self, target, args, kwargs):
        if target is torch.ops.aten.cross_entropy_loss.default:
            logits, labels = args[:2]
            counted = labels != (args[4] if len(args) > 4 else -100)
            best = logits[counted].topk(min(MOST, logits.shape[1])).indices == labels[counted][:, None]
            self.counts[self.node.name] = {"labels": int(counted.sum()),
                                           "right": [int(best[:, :k].sum()) for k in range(1, best.shape[1] + 1)]}
        return super().call_function(target, args, kwargs)


def load(path, arrays):
    """The exported program; the test files are without the example inputs that PyTorch expects."""
    content = io.BytesIO(path.read_bytes())
    with zipfile.ZipFile(content, "a") as archive:
        name = archive.namelist()[0].split("/")[0] + "/data/sample_inputs/model.pt"
        if name not in archive.namelist():
            inputs = io.BytesIO()
            torch.save((arrays, {}), inputs)
            archive.writestr(name, inputs.getvalue())
    content.seek(0)
    return torch.export.load(content)


def arrays_of(known):
    for key, value in known.items():
        if key.startswith("input."):
            real = any(isinstance(number, float) for number in value["values"])
            yield torch.tensor(value["values"], dtype=torch.float64 if real else torch.int64).reshape(value["dims"])


def main():
    folder = models.TEST_DATA / "gradients"
    result = {}
    for name in models.MODELS:
        arrays = tuple(arrays_of(json.loads((folder / f"{name}.json").read_text())))
        counter = Counter(load(folder / f"{name}.pt2", arrays).module())
        counter.run(*arrays)
        result[name] = counter.counts
    (models.TEST_DATA / "classes.json").write_text(json.dumps(result, indent=1) + "\n")


main()
