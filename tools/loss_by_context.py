#!/usr/bin/env python3
"""Measures what far context gives a model: the loss of the same tokens after 256 to 511 tokens, 512 to 1023 and so on.

    tools/loss_by_context.py out.csv --load CHECKPOINT --data-path PREFIX --lengths 512,1024,...,16384

PREFIX is indexed data (trifold tokenize). From the middle of each document that is long enough come --tokens tokens.
For each length N, windows of N tokens that begin N/2 apart have each of them once in their second half, where only the
loss counts. So rows differ in nothing but the number of tokens before. A model that looks back only has the same loss
at position i of a longer window; the rows are its loss by position, without the chance of which tokens stand where.
Standard errors are over documents. The file has the columns of `trifold evaluate --loss-by-position`;
tools/plot_positions.py --parts 1 draws it.
"""

import argparse
import csv
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
from array import array

MAGIC = b"MMIDIDX\0\0"
UINT16 = 8  # the code of the type of tokens


def read_documents(prefix):
    """The tokens of each document of indexed data."""
    index = pathlib.Path(prefix + ".idx").read_bytes()
    version, kind, sequences, _ = struct.unpack_from("<QBQQ", index, len(MAGIC))
    if not index.startswith(MAGIC) or version != 1 or kind != UINT16:
        sys.exit(f"{prefix}.idx is not an index of 16-bit tokens")
    tokens = array("H", pathlib.Path(prefix + ".bin").read_bytes())
    documents, begin = [], 0
    for length in struct.unpack_from(f"<{sequences}i", index, 34):
        documents.append(tokens[begin:begin + length])
        begin += length
    return documents


def write_document(prefix, tokens):
    pathlib.Path(prefix + ".bin").write_bytes(tokens.tobytes())
    head = MAGIC + struct.pack("<QBQQ", 1, UINT16, 1, 2)
    pathlib.Path(prefix + ".idx").write_bytes(head + struct.pack("<iqqq", len(tokens), 0, 0, 1))


def windows(document, length, first, count):
    """Windows of `length` tokens whose second halves are the `count` tokens from `first` on, back to back."""
    half = length // 2
    out = array("H")
    for begin in range(first - half, first + count - half, half):
        out.extend(document[begin:begin + length])
    out.append(document[first + count])  # the label of the last token
    return out


def evaluate(options, folder, length, tokens):
    """[(position, tokens, loss)] of the second half of windows of `length` that `tokens` holds."""
    prefix = os.path.join(folder, "windows")
    write_document(prefix, tokens)
    command = [options.program, "evaluate", "--load", options.load, "--data-path", prefix, "--split", "0,100,0",
               "--seq-length", str(length), "--micro-batch-size", str(max(1, 16384 // length)),
               "--threads-per-rank", str(options.threads), "--loss-by-position", prefix + ".csv"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    with open(prefix + ".csv", encoding="utf-8") as file:
        rows = [(int(row["position"]), float(row["tokens"]), float(row["loss"])) for row in csv.DictReader(file)]
    # The label of a window's last token is the first of the next window: it does not count.
    return [row for row in rows if length // 2 <= row[0] < length - 1]


def mean(rows):
    return sum(tokens * loss for _, tokens, loss in rows) / sum(tokens for _, tokens, _ in rows)


def mean_and_error(values):
    center = math.fsum(values) / len(values)
    if len(values) < 2:
        return center, math.nan
    return center, math.sqrt(math.fsum((v - center) ** 2 for v in values) / (len(values) - 1) / len(values))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", help="the .csv file to write")
    parser.add_argument("--load", required=True, help="the checkpoint")
    parser.add_argument("--data-path", required=True, help="indexed data: the common prefix of .bin and .idx")
    parser.add_argument("--lengths", default="512,1024,2048,4096,8192,16384", help="of windows, in tokens")
    parser.add_argument("--tokens", type=int, default=65536, help="tokens of a document whose loss is measured")
    parser.add_argument("--documents", type=int, help="only the first N that are long enough (all)")
    parser.add_argument("--program", default="build/release/launch/trifold")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    lengths = [int(length) for length in options.lengths.split(",")]
    before = max(lengths) // 2
    if any(options.tokens % (length // 2) or length % 2 for length in lengths):
        parser.error("--tokens must be a multiple of half of each length")
    documents = [d for d in read_documents(options.data_path) if len(d) > before + options.tokens]
    documents = documents[:options.documents]
    if not documents:
        sys.exit(f"{options.data_path}: no document has more than {before + options.tokens} tokens")
    found = {length: [] for length in lengths}  # the rows of each document
    with tempfile.TemporaryDirectory() as folder:
        for document in documents:
            first = before + (len(document) - before - options.tokens) // 2
            for length in lengths:
                found[length].append(evaluate(options, folder, length, windows(document, length, first, options.tokens)))
    with open(options.output, "w", encoding="utf-8") as file:
        file.write("position,tokens,loss\n")
        for length in lengths:
            for rows in zip(*found[length]):
                file.write(f"{rows[0][0]},{sum(row[1] for row in rows):g},{mean(rows):.6f}\n")
    print(f"{len(documents)} documents, {options.tokens} tokens of each; differences are of the same tokens")
    print("positions        loss             less than the row above   lower in")
    previous = None
    for length in lengths:
        losses = [mean(rows) for rows in found[length]]
        line = f"{length // 2:>5}-{length - 1:<6}" + "{:>9.4f} +- {:.4f}".format(*mean_and_error(losses))
        if previous:
            less = [a - b for a, b in zip(previous, losses)]
            line += "{:>16.4f} +- {:.4f}".format(*mean_and_error(less)) + f"{sum(d > 0 for d in less):>10} of {len(less)}"
        print(line, flush=True)
        previous = losses


if __name__ == "__main__":
    main()
