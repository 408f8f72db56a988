#!/usr/bin/env python3
"""Converts models of facebookresearch/dlrm (torch.save of dlrm_s_pytorch.py --save-model) to weights that `trifold recommend
--init-weights` begins with, and back.

    python3 tools/dlrm_checkpoint.py to-safetensors model.pt weights.safetensors [--tables C1 C2 ...]
    python3 tools/dlrm_checkpoint.py to-pt weights.safetensors model.pt [--tables C1 C2 ...]

Tables have the names of the data's tables, in their order: C1, C2 ... unless --tables names them; back, the order of the file unless
--tables gives another. The weights to convert back are
those of `trifold convert --load RUN --save weights.safetensors`. Reading needs NumPy only; writing model.pt needs torch. Nothing
in a .pt file is executed: it may hold tensors, numbers, texts, lists and dicts.

dlrm's interaction has the order of Trifold's (the pairs (1,0), (2,0), (2,1) ...), and its MLPs a ReLU after each layer, so that
weights need no change but of their names:

    emb_l.0.weight             embedding.C1.weight
    bot_l.0.weight, .2. ...    bottom.0.weight, .1. ...
    top_l.0.weight, .2. ...    top.0.weight, .1. ...

Options of the run: --interaction dot (or cat), --interaction-self with dlrm's --arch-interaction-itself, --embedding-dim, --bottom-mlp
and --top-mlp as they are in dlrm's --arch-mlp-bot and --arch-mlp-top without the first number.
"""

import argparse
import collections
import json
import math
import pickle
import re
import struct
import sys
import zipfile
import zlib

try:
    import numpy as np
except ImportError as reason:
    sys.exit(f"dlrm_checkpoint.py: NumPy is needed: pip install numpy ({reason})")

STORAGES = {"FloatStorage": "<f4", "DoubleStorage": "<f8", "HalfStorage": "<f2", "LongStorage": "<i8", "IntStorage": "<i4",
            "ShortStorage": "<i2", "CharStorage": "i1", "ByteStorage": "u1", "BoolStorage": "?"}
SAFE_TYPES = {"<f4": "F32", "<f8": "F64", "<f2": "F16"}
PARTS = {"bot_l": "bottom", "top_l": "top"}


def fail(message):
    sys.exit(f"dlrm_checkpoint.py: {message}")


class StorageType:
    def __init__(self, dtype):
        self.dtype = dtype


def rebuild_tensor(storage, offset, size, stride, *_):
    size, stride = tuple(size), tuple(stride)
    last = offset + sum((n - 1) * s for n, s in zip(size, stride))
    outside = any(n < 0 for n in size) or any(s < 0 for s in stride) or offset < 0 or (all(size) and last >= len(storage))
    if outside or len(size) != len(stride) or math.prod(size) > len(storage):
        raise ValueError(f"a tensor of the shape {list(size)} lies outside its storage")
    flat = storage[offset:]
    return np.lib.stride_tricks.as_strided(flat, size, [s * flat.itemsize for s in stride]).copy()


class TorchUnpickler(pickle.Unpickler):
    """Makes arrays of tensors; any other class is refused."""

    def __init__(self, file, archive, folder):
        super().__init__(file)
        self.archive, self.folder = archive, folder

    def find_class(self, module, name):
        if module == "torch" and name in STORAGES:
            return StorageType(STORAGES[name])
        known = {("torch._utils", "_rebuild_tensor_v2"): rebuild_tensor,
                 ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
                 ("collections", "OrderedDict"): collections.OrderedDict, ("collections", "defaultdict"): collections.defaultdict}
        if (module, name) in known:
            return known[module, name]
        raise ValueError(f"it holds a {module}.{name}, which is no tensor")

    def persistent_load(self, pid):
        kind, storage, key = pid[0], pid[1], str(pid[2])
        if kind != "storage" or not isinstance(storage, StorageType) or not key.isalnum():
            raise ValueError(f"it holds an object of the kind {kind!r}, which is no tensor")
        return np.frombuffer(self.archive.read(f"{self.folder}/data/{key}"), storage.dtype)


def read_pt(path):
    """The state dictionary of a file of torch.save, as {name: array}."""
    try:
        with zipfile.ZipFile(path) as archive:
            found = [name for name in archive.namelist() if name.endswith("/data.pkl")]
            if len(found) != 1:
                fail(f"{path}: is no archive of torch.save: it has {len(found)} members data.pkl, not one")
            pickled = found[0]
            with archive.open(pickled) as file:
                saved = TorchUnpickler(file, archive, pickled[:-len("/data.pkl")]).load()
    except zipfile.BadZipFile:
        fail(f"{path}: is no archive of torch.save; files of torch before 1.6 must be loaded and saved again by a newer one")
    except (OSError, ValueError, KeyError, TypeError, IndexError, EOFError, AttributeError, RuntimeError, NotImplementedError,
            MemoryError, OverflowError, zlib.error, pickle.UnpicklingError) as error:
        fail(f"{path}: cannot be read: {error}")
    state = saved.get("state_dict", saved) if isinstance(saved, dict) else None
    if not isinstance(state, dict) or not all(isinstance(value, np.ndarray) for value in state.values()):
        fail(f"{path}: holds neither a state_dict nor a model's tensors by name")
    return {name.replace("module.", ""): value for name, value in state.items()}


def weights_of(state, tables, path):
    weights, unknown = {}, []
    embeddings = sorted(int(found[1]) for name in state if (found := re.fullmatch(r"emb_l\.(\d+)\.weight", name)))
    if embeddings != list(range(len(embeddings))):
        fail(f"{path}: has the tables {embeddings}; those of one rank of a distributed run are not the whole model")
    names = tables or [f"C{t + 1}" for t in embeddings]
    if len(names) != len(embeddings) or not names:
        fail(f"{path}: has {len(embeddings)} tables, --tables names {len(names)}")
    for name, value in state.items():
        if found := re.fullmatch(r"emb_l\.(\d+)\.weight", name):
            weights[f"embedding.{names[int(found[1])]}.weight"] = value
        elif (found := re.fullmatch(r"(bot_l|top_l)\.(\d+)\.(weight|bias)", name)) and int(found[2]) % 2 == 0:
            weights[f"{PARTS[found[1]]}.{int(found[2]) // 2}.{found[3]}"] = value
        else:
            unknown.append(name)
    if unknown:
        fail(f"{path}: holds what this program does not know: {', '.join(unknown)}")
    return weights


def write_safetensors(path, weights):
    header, parts, at = {}, [], 0
    for name, value in weights.items():
        data = np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<"), copy=False)
        if data.dtype.str not in SAFE_TYPES:
            fail(f"{name} has numbers of the type {data.dtype}, which no weight has")
        if data.dtype.str == "<f2":
            data = data.astype("<f4")
        parts.append(data.tobytes())
        header[name] = {"dtype": SAFE_TYPES[data.dtype.str], "shape": list(data.shape), "data_offsets": [at, at + len(parts[-1])]}
        at += len(parts[-1])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


def read_safetensors(path):
    try:
        with open(path, "rb") as file:
            data = file.read()
        (size,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8:8 + size])
        types = {"F32": "<f4", "F64": "<f8", "I64": "<i8"}
        weights = {}
        for name, entry in header.items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                weights[name] = np.frombuffer(data[8 + size + begin:8 + size + end], types[entry["dtype"]]).reshape(entry["shape"])
        return weights
    except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
        fail(f"{path}: is no safetensors file of weights: {error}")


def state_of(weights, tables, path):
    found = [name[len("embedding."):-len(".weight")] for name in weights if re.fullmatch(r"embedding\..*\.weight", name)]
    names = tables or found
    if sorted(names) != sorted(found):
        fail(f"{path}: has the tables {', '.join(found)}; --tables must name each of them once")
    state = collections.OrderedDict((f"emb_l.{t}.weight", weights[f"embedding.{name}.weight"]) for t, name in enumerate(names))
    for name, value in weights.items():
        if re.fullmatch(r"embedding\..*\.weight", name):
            continue
        if found := re.fullmatch(r"(bottom|top)\.(\d+)\.(weight|bias)", name):
            part = "bot_l" if found[1] == "bottom" else "top_l"
            state[f"{part}.{2 * int(found[2])}.{found[3]}"] = value
        else:
            fail(f"{path}: dlrm has no counterpart of {name}")
    return state


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for command in (commands.add_parser("to-safetensors"), commands.add_parser("to-pt")):
        command.add_argument("--tables", nargs="+")
        command.add_argument("source")
        command.add_argument("target")
    options = parser.parse_args()
    if options.command == "to-safetensors":
        write_safetensors(options.target, weights_of(read_pt(options.source), options.tables, options.source))
        return
    state = state_of(read_safetensors(options.source), options.tables, options.source)
    try:
        import torch
    except ImportError:
        fail("to-pt needs torch: pip install torch")
    torch.save({"state_dict": collections.OrderedDict((name, torch.from_numpy(value.astype("float32"))) for name, value in state.items())},
               options.target)


if __name__ == "__main__":
    main()
