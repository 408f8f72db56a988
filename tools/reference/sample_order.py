#!/usr/bin/env python3
"""Writes tests/golden/sample_order.json: sample orders made with NumPy's own RandomState.

An implementation of Megatron-LM's rule, written from its description and apart from the C++ one, for larger cases
than tests/golden/megatron_data.json holds. Run from the top level:  python3 tools/reference/sample_order.py
"""
import json

import numpy


def sample_order(sizes, num_samples, length, seed):
    per_epoch = sum(sizes)
    epochs = 1
    while num_samples is not None and epochs * per_epoch < num_samples * length + 1:
        epochs += 1
    separate = False
    before = 0
    if epochs > 1:
        before = ((epochs - 1) * per_epoch - 1) // length
        separate = num_samples - before < int(0.80 * ((per_epoch - 1) // length))
    random = numpy.random.RandomState(seed)
    documents = numpy.arange(len(sizes), dtype=numpy.int32)
    if separate:
        first = numpy.tile(documents, epochs - 1)
        random.shuffle(first)
        last = documents.copy()
        random.shuffle(last)
        order = numpy.concatenate((first, last))
    else:
        order = numpy.tile(documents, epochs)
        random.shuffle(order)
    # The position of each token of the concatenated stream; a sample starts at every `length`-th token, but counts as
    # starting in the sequence that holds that token as the last token of the previous sample.
    ends = numpy.cumsum([sizes[d] for d in order])
    count = (epochs * per_epoch - 1) // length
    starts = [[0, 0]]
    for i in range(1, count + 1):
        position = int(numpy.searchsorted(ends, i * length, side="right"))
        before_it = 0 if position == 0 else int(ends[position - 1])
        starts.append([position, i * length - before_it])
    if separate:
        first = numpy.arange(before)
        random.shuffle(first)
        last = numpy.arange(before, count)
        random.shuffle(last)
        shuffle = numpy.concatenate((first, last))
    else:
        shuffle = numpy.arange(count)
        random.shuffle(shuffle)
    return {"sizes": sizes, "num_samples": num_samples, "seq_length": length, "seed": seed, "epochs": epochs,
            "separate_final_epoch": separate, "doc": order.tolist(), "sample": starts, "shuffle": shuffle.tolist()}


def main():
    sizes = [int(x) for x in numpy.random.RandomState(99).randint(1, 60, size=200)]
    cases = [sample_order(sizes, n, length, seed)
             for n, length, seed in [(None, 32, 1234), (100, 32, 1234), (250, 32, 1234), (370, 32, 5),
                                     (380, 32, 5), (500, 64, 4294967295)]]
    # The last epoch is shuffled separately if less than 80 % of its samples are needed: both sides of that bound.
    per_epoch = (sum(sizes) - 1) // 32
    bound = per_epoch + int(0.80 * per_epoch)
    cases += [sample_order(sizes, bound - 1, 32, 7), sample_order(sizes, bound, 32, 7)]
    assert [case["separate_final_epoch"] for case in cases[-2:]] == [True, False]
    cases.append(sample_order([3, 1, 1, 2, 40], 60, 7, 0))
    with open("tests/golden/sample_order.json", "w", encoding="ascii") as out:
        out.write('{"cases": [\n' + ",\n".join(json.dumps(c) for c in cases) + "\n]}\n")


if __name__ == "__main__":
    main()
