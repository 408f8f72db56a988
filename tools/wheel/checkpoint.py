"""Reads the weights of a checkpoint into a module of PyTorch.

The manifest says where the elements of each piece of a tensor are in a file and what their CRC-32 is, so neither HDF5
nor NumPy is needed (docs/checkpoint_format.md).
"""

import json
import pathlib
import zlib

TYPES = {"f64": "float64", "f32": "float32", "bf16": "bfloat16", "f16": "float16"}


def exists(save):
    """Whether a run has saved a checkpoint in `save`."""
    return (pathlib.Path(save) / "LATEST").exists()


def newest(save):
    """The folder of the newest checkpoint that a run saved in `save`."""
    folder = pathlib.Path(save)
    return folder / (folder / "LATEST").read_text(encoding="ascii").strip()


def manifest_of(folder):
    """The manifest of a checkpoint, whose last field is its checksum. ValueError if it is damaged."""
    path = folder / "manifest.json"
    text = path.read_bytes()
    if text[-12:] != b'%08x"\n}\n' % zlib.crc32(text[:-12]):
        raise ValueError(f"{path} is damaged: its checksum is not that of its text")
    return json.loads(text)


def load_weights(folder, parameters):
    """Overwrites parameters, a dictionary by name, with the checkpoint's weights of these names.

    Returns the names that were found. ValueError if a piece is damaged, a tensor has another shape, or no parameter has the
    name of one.
    """
    import torch

    manifest = manifest_of(folder)
    found = []
    for tensor in manifest["tensors"]:
        kind, _, name = tensor["name"].partition("/")
        if kind != "param":
            continue
        if name not in parameters:
            raise ValueError(f"{name} is a weight in {folder}, but no parameter of this module")
        parameter = parameters[name].detach()
        if parameter.dim() == 0:
            parameter = parameter.reshape(1)  # as checkpoints have a number
        if list(parameter.shape) != tensor["shape"]:
            raise ValueError(f"{name} has the shape {list(parameter.shape)}, but {tensor['shape']} in {folder}")
        dtype = getattr(torch, TYPES[tensor["dtype"]])
        for piece in tensor["pieces"]:
            box = tuple(slice(begin, begin + extent) for begin, extent in zip(piece["offset"], piece["extent"]))
            values = torch.frombuffer(read_piece(folder, manifest, piece, dtype.itemsize), dtype=dtype)
            parameter[box].copy_(values.reshape(piece["extent"]))
        found.append(name)
    return found


def read_piece(folder, manifest, piece, element_bytes):
    size = element_bytes
    for extent in piece["extent"]:
        size *= extent
    path = folder / manifest["files"][piece["file"]]["name"]
    content = bytearray(size)
    with open(path, "rb") as file:
        file.seek(piece["byte_offset"])
        count = file.readinto(content)
    if count != size or f"{zlib.crc32(content):08x}" != piece["crc32"]:
        raise ValueError(f"{path} is damaged: the {size} bytes from {piece['byte_offset']} have another checksum")
    return content
