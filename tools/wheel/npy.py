"""Files of one array (.npy, version 1.0) without NumPy: written from arrays in memory, and their headers read."""

import ast
import ctypes
import struct

MAGIC = b"\x93NUMPY"
# What a file says of an element, by PyTorch's name of it. The format has no bfloat16.
OF_TORCH = {"float64": "<f8", "float32": "<f4", "float16": "<f2", "int64": "<i8", "int32": "<i4", "int16": "<i2",
            "int8": "|i1", "uint8": "|u1", "bool": "|b1"}


def save(path, array):
    """Writes a tensor of PyTorch or an array of NumPy. TypeError for anything else, and for elements of other types."""
    if hasattr(array, "data_ptr"):
        kept = array.detach().cpu().contiguous()
        kind = OF_TORCH.get(str(kept.dtype).rpartition(".")[2])
        content = (ctypes.c_char * (kept.numel() * kept.element_size())).from_address(kept.data_ptr())
    elif hasattr(array, "dtype") and hasattr(array, "tobytes"):
        kept = array
        kind = array.dtype.str if array.dtype.kind in "fiub" else None
        content = array.tobytes()
    else:
        raise TypeError(f"an array is {type(array).__name__}: give an array of NumPy, a tensor of PyTorch, or a path")
    if kind is None:
        raise TypeError(f"an array has elements of type {array.dtype}: give floating-point numbers of 16, 32 or 64 bits, "
                        "whole numbers or truth values")
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {tuple(kept.shape)}, }}".encode("ascii")
    length = -(-(len(MAGIC) + 4 + len(header) + 1) // 64) * 64 - len(MAGIC) - 4  # elements begin at a multiple of 64
    with open(path, "wb") as file:
        file.write(MAGIC + b"\x01\x00" + struct.pack("<H", length) + header.ljust(length - 1) + b"\n")
        file.write(content)


def shape_and_type(path):
    """The shape of the array in a file, and PyTorch's name of its elements' type. ValueError for other files."""
    with open(path, "rb") as file:
        start = file.read(8)
        if start[:6] != MAGIC or start[6] not in (1, 2, 3):
            raise ValueError(f"{path} is not a .npy file: give one, or give `example`, the arrays of a small batch")
        size = struct.unpack("<H", file.read(2)) if start[6] == 1 else struct.unpack("<I", file.read(4))
        header = ast.literal_eval(file.read(size[0]).decode("latin1"))
    names = {kind[1:]: name for name, kind in OF_TORCH.items()}
    if header["descr"][1:] not in names:
        raise ValueError(f"{path} has elements of type {header['descr']}: give `example`, the arrays of a small batch")
    return tuple(header["shape"]), names[header["descr"][1:]]
