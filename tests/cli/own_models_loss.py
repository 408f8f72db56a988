"""Prints the mean loss of an exported program with another state dictionary, without dropout.

usage: own_models_loss.py MODEL.pt2 MODEL.safetensors NAME=FILE.npy ...

It needs PyTorch. Safetensors files are read without their library.
"""

import io
import json
import pathlib
import struct
import sys
import warnings
import zipfile

import torch

TYPES = {"F64": torch.float64, "F32": torch.float32, "I64": torch.int64}


def state_of(path):
    data = pathlib.Path(path).read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    header.pop("__metadata__", None)
    return {name: torch.frombuffer(bytearray(data[begin + entry["data_offsets"][0]:begin + entry["data_offsets"][1]]),
                                   dtype=TYPES[entry["dtype"]]).reshape(entry["shape"]) for name, entry in header.items()}


def matrix(path):
    """A matrix of whole numbers in a .npy file."""
    data = pathlib.Path(path).read_bytes()
    begin = 10 + struct.unpack("<H", data[8:10])[0]
    shape = eval(data[10:begin])["shape"]  # pylint: disable=eval-used
    return torch.frombuffer(bytearray(data[begin:]), dtype=torch.int64).reshape(shape)


def load(path, arrays):
    """The exported program of a file, also of one without the example inputs that PyTorch expects."""
    content = io.BytesIO(pathlib.Path(path).read_bytes())
    with zipfile.ZipFile(content, "a") as archive:
        name = archive.namelist()[0].split("/")[0] + "/data/sample_inputs/model.pt"
        if name not in archive.namelist():
            inputs = io.BytesIO()
            torch.save((tuple(arrays.values()), {}), inputs)
            archive.writestr(name, inputs.getvalue())
    content.seek(0)
    return torch.export.load(content)


def main():
    warnings.simplefilter("ignore")
    arrays = {name: matrix(path) for name, path in (word.split("=") for word in sys.argv[3:])}
    program = load(sys.argv[1], arrays)
    module = program.module()
    module.load_state_dict(state_of(sys.argv[2]))
    # A graph keeps the dropout of the module from which it was exported.
    for node in module.graph.nodes:
        if node.op == "call_function" and str(node.target) == "aten.dropout.default":
            node.args = (node.args[0], 0.0, *node.args[2:])
        if node.op == "call_function" and "scaled_dot_product_attention" in str(node.target):
            node.args = tuple(0.0 if i == 4 else value for i, value in enumerate(node.args))
            node.kwargs = {name: 0.0 if name == "dropout_p" else value for name, value in node.kwargs.items()}
    module.recompile()
    total, count = module(*arrays.values())
    print(repr(total.item() / count.item()))


main()
