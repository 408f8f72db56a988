#!/usr/bin/env python3
"""Writes the golden files of tests/cli/weights_test.py: a model of facebookresearch/dlrm, saved by torch.save as dlrm_s_pytorch.py
does, a model with the names and the order of pairs of TorchRec's DLRM, as safetensors, and what both predict, as JSON.

    python3 tools/reference/dlrm_checkpoint_torch.py tests/golden

Needs torch. Both models are written here from their definitions: torch's own modules under the names that they have there.
"""

import collections
import json
import pathlib
import sys

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from dlrm_checkpoint import write_safetensors  # noqa: E402

ROWS, WIDTH, DENSE, BOTTOM, TOP = [7, 5, 4], 4, 3, [6, 4], [5, 1]


def mlp(widths):
    layers = []
    for inputs, outputs in zip(widths, widths[1:]):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return layers


class Dlrm(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb_l = nn.ModuleList(nn.EmbeddingBag(rows, WIDTH, mode="sum") for rows in ROWS)
        self.bot_l = nn.Sequential(*mlp([DENSE, *BOTTOM]))
        vectors = len(ROWS) + 1
        self.top_l = nn.Sequential(*mlp([WIDTH + vectors * (vectors - 1) // 2, *TOP])[:-1], nn.Sigmoid())

    def vectors(self, dense, ids):
        return torch.stack([self.bot_l(dense), *(table(ids[:, t:t + 1]) for t, table in enumerate(self.emb_l))], 1)

    def forward(self, dense, ids, upper=False):
        stack = self.vectors(dense, ids)
        places = torch.triu_indices(4, 4, 1) if upper else torch.tril_indices(4, 4, -1)
        pairs = (stack @ stack.transpose(1, 2))[:, places[0], places[1]]
        return self.top_l(torch.cat([stack[:, 0], pairs], 1)).squeeze(1)


def torchrec_names(state):
    names = collections.OrderedDict()
    for name, value in state.items():
        part, layer, *kind = name.split(".")
        if part == "emb_l":
            new = f"sparse_arch.embedding_bag_collection.embedding_bags.C{int(layer) + 1}.weight"
        elif part == "bot_l":
            new = f"dense_arch.model._mlp.{int(layer) // 2}._linear.{kind[0]}"
        else:
            new = f"over_arch.model.1.{kind[0]}" if layer == "2" else f"over_arch.model.0._mlp.0._linear.{kind[0]}"
        names["model." + new] = value
    return names


def main(folder):
    import numpy as np

    torch.manual_seed(5)
    dlrm, torchrec = Dlrm(), Dlrm()
    dense = torch.randint(-8, 9, (20, DENSE)) / 4
    ids = torch.stack([torch.randint(0, rows, (20,)) for rows in ROWS], 1)
    torch.save({"epoch": 1, "nepochs": 1, "train_loss": 0.5, "state_dict": dlrm.state_dict(),
                "opt_state_dict": torch.optim.SGD(dlrm.parameters(), lr=0.1).state_dict()}, f"{folder}/dlrm_model.pt")
    write_safetensors(f"{folder}/torchrec_model.safetensors",
                      {name: np.array(value.tolist(), "<f4") for name, value in torchrec_names(torchrec.state_dict()).items()})
    with torch.no_grad():
        golden = {"dense": dense.tolist(), "ids": ids.tolist(), "dlrm": dlrm(dense, ids).tolist(),
                  "torchrec": torchrec(dense, ids, upper=True).tolist(),
                  "first_weight": dlrm.emb_l[0].weight.tolist()}
    pathlib.Path(f"{folder}/dlrm_model.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
