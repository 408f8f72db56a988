#!/usr/bin/env python3
"""Writes random clicks in the form of Criteo's TSV files, for measurements.

    python3 tools/reference/criteo_text.py --bytes 1e9 clicks.tsv

Needs numpy. About 240 bytes a line, as in Criteo's files: a label (a quarter is 1), 13 numbers, of which a fifth is
missing and a few are negative, 26 hashes by a power law over the table sizes of Criteo's Kaggle set, a tenth missing.
"""

import argparse

import numpy

ROWS = [1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306, 10, 5652,
        2173, 4, 7046547, 18, 15, 286181, 105, 142572]
DIGITS = numpy.frombuffer(b"0123456789abcdef", dtype=numpy.uint8)
TAB, NEWLINE, MINUS, ZERO = 9, 10, 45, 48


def hash_field(random, rows, count):
    """[count, 8] bytes; rows of zeros are missing. Ranks follow (r + 1)^-1.05; hashes scatter them over 32 bits."""
    top = (rows + 1) ** -0.05 - 1
    ranks = ((1 + random.random(count) * top) ** -20 - 1).astype(numpy.uint64)
    hashes = ((ranks + numpy.uint64(rows)) * numpy.uint64(2654435761) + numpy.uint64(97)) & numpy.uint64(0xFFFFFFFF)
    shifts = numpy.arange(28, -4, -4, dtype=numpy.uint64)
    field = DIGITS[((hashes[:, None] >> shifts) & numpy.uint64(15)).astype(numpy.intp)]
    field[random.random(count) < 0.1] = 0
    return field


def number_field(random, count):
    """[count, 6] bytes: a sign and five digits without leading zeros."""
    u = random.random(count)
    numbers = numpy.minimum(3 * u / (1 - u), 99999).astype(numpy.int64)
    field = numpy.zeros((count, 6), dtype=numpy.uint8)
    for place in range(5):
        power = 10 ** (4 - place)
        shown = (numbers >= power) | (power == 1)
        field[:, place + 1] = numpy.where(shown, ZERO + numbers // power % 10, 0)
    field[(random.random(count) < 0.02) & (numbers > 0), 0] = MINUS
    field[random.random(count) < 0.2] = 0
    return field


def lines(random, count):
    """Fields of fixed width side by side, unused bytes 0, which are then dropped."""
    def column(byte):
        return numpy.full((count, 1), byte, dtype=numpy.uint8)

    parts = [(ZERO + (random.random(count) < 0.25)).astype(numpy.uint8)[:, None]]
    for _ in range(13):
        parts += [column(TAB), number_field(random, count)]
    for rows in ROWS:
        parts += [column(TAB), hash_field(random, rows, count)]
    flat = numpy.concatenate(parts + [column(NEWLINE)], axis=1).ravel()
    return flat[flat != 0].tobytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path")
    parser.add_argument("--bytes", type=float, default=1e9)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    random = numpy.random.default_rng(options.seed)
    written = 0
    with open(options.path, "wb") as file:
        while written < options.bytes:
            written += file.write(lines(random, 100_000))


if __name__ == "__main__":
    main()
