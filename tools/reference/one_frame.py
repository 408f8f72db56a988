#!/usr/bin/env python3
"""Writes one pandas frame in many formats, with what pandas makes of it: the files of tests/data/one_frame, which
tests/cli/one_frame_test.py reads.

    pip install pandas pyarrow duckdb numpy
    tools/reference/one_frame.py tests/data/one_frame

`shop.*` have columns of any type: nulls in every kind of column, whole numbers of all widths, floats, decimals, flags, texts with blanks,
quotes and accents, dates as text. `numbered.*` have the usual names (label, I1, C1) and whole ids, as NumPy archives have."""

import csv
import decimal
import json
import pathlib
import sys

import duckdb
import numpy
import pandas
import pyarrow
import pyarrow.csv
import pyarrow.parquet

CITIES = (" Oslo", "Oslo ", 'Lima, "Peru"', "東京", None, "São Paulo", '"Weird" Al', "", "NA", "São Paulo", " ", "2.0", "2", "+2", "007", "1.10", "1.1")


def shop(rows=34):
    """Row i of each column follows from i alone."""
    def every(count, value):
        return [None if i % count == count - 1 else value(i) for i in range(rows)]
    frame = pandas.DataFrame({
        "rating": numpy.array([(i * 7 % 50) / 10 for i in range(rows)], numpy.float32),
        "price": numpy.array([numpy.nan if i % 5 == 4 else -0.0 if i % 5 == 3 else (i - 9) * 1e5 / 8 for i in range(rows)]),
        "score": numpy.array([-99.9 if i % 4 == 1 else i / 10 - 1 for i in range(rows)], numpy.float32),
        "age": pandas.array(every(6, lambda i: i * 3 - 20), "Int64"),
        "cents": every(7, lambda i: decimal.Decimal(i * 25 - 100) / 100),
        "member": pandas.array(every(5, lambda i: i % 3 == 0), "boolean"),
        "user": numpy.array([numpy.nan if i % 8 == 7 else i % 5 - 1 for i in range(rows)]),
        "tenth": numpy.array([i % 6 / 10 for i in range(rows)], numpy.float32),
        "wide": numpy.array([i % 3 * 10 ** (5 * (i % 4)) for i in range(rows)], numpy.float64),
        "item": numpy.array([i % 4 - 2 for i in range(rows)], numpy.int64),
        "hash": numpy.array([2 ** 64 - 1 - i % 3 for i in range(rows)], numpy.uint64),
        "small": numpy.array([i % 5 - 128 for i in range(rows)], numpy.int8),
        "city": [CITIES[i % len(CITIES)] for i in range(rows)],
        "kind": pandas.Categorical(every(9, lambda i: ("new", "used ", "old")[i % 3])),
        "day": every(10, lambda i: f"2024-01-{i % 7 + 1:02}"),
        "tags": every(4, lambda i: "|".join(("a", " b", "2.0", "2", "é")[:i % 6])),
    })
    frame["cents"] = [None if value is None else value.quantize(decimal.Decimal("1.00")) for value in frame["cents"]]
    return frame


def numbered(rows=30):
    return pandas.DataFrame({
        "label": numpy.array([i % 3 == 0 for i in range(rows)], numpy.int64),
        "I1": numpy.array([i - 5 for i in range(rows)], numpy.int64),
        "I2": numpy.array([numpy.nan if i % 4 == 3 else i / 10 for i in range(rows)], numpy.float64),
        "C1": numpy.array([i % 7 - 1 for i in range(rows)], numpy.int64),
        "C2": numpy.array([numpy.nan if i % 6 == 5 else (i % 4) * 1000003 for i in range(rows)], numpy.float64)})


def write_texts(frame, stem):
    for name, quoting in (("minimal", csv.QUOTE_MINIMAL), ("all", csv.QUOTE_ALL), ("texts", csv.QUOTE_NONNUMERIC)):
        frame.to_csv(f"{stem}_{name}.csv", index=False, quoting=quoting)
    frame.to_csv(f"{stem}_packed.csv.gz", index=False, compression={"method": "gzip", "mtime": 1})


def write_parquets(frame, stem, types):
    """`types`: other types of pyarrow for columns of pandas."""
    frame.to_parquet(f"{stem}_pandas.parquet", index=False)
    table = pyarrow.Table.from_pandas(frame, preserve_index=False)
    pyarrow.csv.write_csv(table, f"{stem}_pyarrow.csv")
    for column, kind in types.items():
        place = table.column_names.index(column)
        table = table.set_column(place, column, table[column].cast(kind))
    pyarrow.parquet.write_table(table, f"{stem}_pyarrow.parquet", row_group_size=11, compression="zstd")
    base = duckdb.connect()
    base.register("frame", frame)
    base.execute(f"COPY frame TO '{stem}_duckdb.parquet' (FORMAT parquet)")
    base.execute(f"COPY frame TO '{stem}_duckdb.csv' (FORMAT csv, HEADER)")


def write_plain_tabs(frame, path):
    """Fields between tabs as they are, as pandas reads them with quoting=3."""
    text = frame.to_csv(index=False, sep="\t")
    rows = csv.reader(text.splitlines(), delimiter="\t")
    pathlib.Path(path).write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    frame = shop()
    write_texts(frame, folder / "shop")
    frame.to_csv(folder / "shop_tabs.tsv", index=False, sep="\t")
    write_plain_tabs(frame, folder / "shop_plain.tsv")
    write_parquets(frame, folder / "shop", {"city": pyarrow.large_string(), "day": pyarrow.dictionary(pyarrow.int16(), pyarrow.string()),
                                            "tags": pyarrow.large_string(), "item": pyarrow.int16(), "age": pyarrow.int8(),
                                            "user": pyarrow.int8(), "wide": pyarrow.int64(), "cents": pyarrow.decimal128(20, 2)})
    expected = {"labels": (frame["rating"] >= 3.1).astype(int).tolist(),
                "dense": [[0 if pandas.isna(value) or value in (-1, numpy.float32(-99.9)) else float(numpy.float32(value)) for value in row]
                          for row in frame[["price", "score", "age", "cents", "member"]].astype(object).itertuples(index=False)]}
    (folder / "shop.json").write_text(json.dumps(expected) + "\n", encoding="utf-8")
    frame = numbered()
    write_texts(frame, folder / "numbered")
    write_parquets(frame, folder / "numbered", {"I2": pyarrow.float64(), "C1": pyarrow.int8(), "C2": pyarrow.int32()})
    numpy.savez(folder / "numbered_arrays.npz", y=frame["label"].to_numpy(), X_int=numpy.ascontiguousarray(frame[["I1", "I2"]].to_numpy()),
                X_cat=numpy.ascontiguousarray(frame[["C1", "C2"]].to_numpy()))


if __name__ == "__main__":
    main()
