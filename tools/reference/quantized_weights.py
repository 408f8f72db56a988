"""Writes tests/golden/quantized.json: quantized matrices and their values, computed with NumPy from the definitions in
src/ops/quantized.h.

    python3 tools/reference/quantized_weights.py [FILE]

The values of Nf4 are those that QLoRA published (arXiv 2305.14314, appendix E). They are compared with the quantiles of
the normal distribution that they stand for: evenly spaced in probability, eight steps above 0 and seven below, up to the
mean of 1 - 1/32 and 1 - 1/30, divided by the largest. They were computed in f32, so they agree to within 5e-7.
"""

import sys
from pathlib import Path
from statistics import NormalDist

import numpy as np

import golden_json

BLOCK = 64
FILE = Path(__file__).resolve().parents[2] / "tests/golden/quantized.json"


PUBLISHED = [
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]


def quantiles():
    most = ((1 - 1 / 32) + (1 - 1 / 30)) / 2
    quantile = NormalDist().inv_cdf
    positive = [quantile(p) for p in np.linspace(most, 0.5, 9)[:-1]]
    negative = [-quantile(p) for p in np.linspace(most, 0.5, 8)[:-1]]
    values = np.array(sorted(positive + negative + [0.0]))
    return values / np.abs(values).max()


def bf16_up(x):
    """The smallest bf16 number that is not below x, which is not negative; and its bits."""
    bits = (np.float32(x).view(np.uint32).astype(np.uint64) + 0xFFFF) >> 16
    return (bits.astype(np.uint32) << 16).view(np.float32), bits.astype(np.uint16)


def blocks(rows, columns, matrix_rows, along_columns):
    """The elements of each block, in the order of their scales."""
    if not along_columns:
        for row in range(rows):
            for begin in range(0, columns, BLOCK):
                yield [(row, column) for column in range(begin, min(begin + BLOCK, columns))]
        return
    for matrix in range(0, rows, matrix_rows):
        for begin in range(matrix, matrix + matrix_rows, BLOCK):
            for column in range(columns):
                yield [(row, column) for row in range(begin, min(begin + BLOCK, matrix + matrix_rows))]


def quantized(x, kind, matrix_rows, along_columns, table):
    codes = np.zeros(x.shape, dtype=np.int64)
    values = np.zeros(x.shape, dtype=np.float32)
    scales = []
    for block in blocks(*x.shape, matrix_rows, along_columns):
        at = tuple(np.array(block).T)
        part = x[at]
        largest = np.abs(part).max()
        scale, bits = bf16_up(largest if kind == "nf4" else largest / np.float32(127))
        scales.append(int(bits))
        ratio = part / scale if scale > 0 else np.zeros_like(part)
        if kind == "nf4":
            code = np.searchsorted((table[:-1] + table[1:]) / np.float32(2), ratio, side="right")
            value = table[code]
        else:
            code = np.clip(np.rint(ratio), -127, 127).astype(np.int64)
            value = code.astype(np.float32)
        codes[at] = code
        values[at] = value * scale
    return {"codes": codes.ravel().tolist(), "scales": scales, "values": [float(v) for v in values.ravel()]}


def main():
    table = np.array(PUBLISHED, dtype=np.float32)
    assert np.abs(table - quantiles()).max() < 5e-7
    random = np.random.default_rng(7)
    cases = []
    shapes = [(3, 70, 3, False), (4, 64, 2, False), (132, 3, 66, True), (5, 4, 5, True)]
    for rows, columns, matrix_rows, along_columns in shapes:
        x = random.normal(0, 0.02, (rows, columns)).astype(np.float32)
        x[0] = 0 if columns == 64 else x[0]  # a block of zeros
        x[1, 1] = 0.5  # an outlier
        for kind in ["nf4", "int8"]:
            cases.append({"type": kind, "rows": rows, "columns": columns, "matrix_rows": matrix_rows,
                          "along_columns": along_columns, "x": [float(v) for v in x.ravel()],
                          **quantized(x, kind, matrix_rows, along_columns, table)})
    golden_json.write(sys.argv[1] if len(sys.argv) > 1 else FILE, {"nf4": [float(v) for v in table], "cases": cases})


if __name__ == "__main__":
    main()
