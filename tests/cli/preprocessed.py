"""Preprocessing in tests: tables as text, and the clicks in the folder that `preprocess` writes."""

import csv
import io
import json
import math
import random
import struct

from program import ProgramTest

ADULT = ("--label", "income==>50K", "--dense", "age,hours-per-week,member", "--sparse", "job,home country", "--missing-values", "?", "--threads", 2)
JOBS = ('sales', 'craft, repair', 'say "no"', 'Käse', 'clerk')


def hash_of(text, seed=0):
    """64-bit FNV-1a that starts from the seed, and SplitMix64's finaliser."""
    mask = (1 << 64) - 1
    value = 0xcbf29ce484222325 ^ (seed * 0x9e3779b97f4a7c15 & mask)
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001b3 & mask
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9 & mask
    value = (value ^ value >> 27) * 0x94d049bb133111eb & mask
    return value ^ value >> 31


def people(count, seed=1):
    """Rows of age, job, hours, member, country, remark and income, which follows from job and hours."""
    draw = random.Random(seed)
    for _ in range(count):
        job, hours = draw.randrange(len(JOBS)), draw.randrange(10, 80)
        rich = draw.random() < 1 / (1 + math.exp(-(job - 2) - (hours - 45) / 15))
        yield [draw.choice((draw.randrange(17, 90), "?")), JOBS[job], hours + 0.5, draw.choice(("True", "False", "")),
               draw.choice(("Peru", "Laos", "?", "")), 'a "free" remark, with commas', ">50K" if rich else "<=50K"]


HEADER = ["age", "job", "hours-per-week", "member", "home country", "remark", "income"]


def text_of(rows, delimiter=",", header=HEADER):
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\r\n")
    writer.writerow(header)
    writer.writerows(rows)
    return out.getvalue()


class PreprocessTest(ProgramTest):
    def preprocess(self, source, target, *arguments, columns=ADULT, **options):
        sources = source if isinstance(source, list) else [source]
        return self.trifold("preprocess", "--input", *sources, "--output", target, *columns, *arguments, **options)

    def write(self, name, text):
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())

    def folder_of(self, name):
        """Labels, dense numbers and ids of a folder of clicks."""
        folder = self.folder / name
        manifest = json.loads((folder / "clicks.json").read_text())
        labels = list((folder / "labels.bin").read_bytes())
        dense = [value for (value,) in struct.iter_unpack("<f", (folder / "dense.bin").read_bytes())]
        ids = {table["name"]: [value for (value,) in struct.iter_unpack({1: "<B", 2: "<H", 4: "<I"}[table["id_bytes"]],
                                                                          (folder / f"{table['name']}.ids").read_bytes())]
               for table in manifest["tables"]}
        return manifest, labels, dense, ids

    def bags(self, name):
        """The bags of each table of bags, and those of one id as bags too."""
        manifest, labels, _, ids = self.folder_of(name)
        found = {}
        for table in manifest["tables"]:
            path = self.folder / name / f"{table['name']}.ends"
            ends = [end for (end,) in struct.iter_unpack("<Q", path.read_bytes())] if path.exists() else range(1, len(labels) + 1)
            found[table["name"]] = [ids[table["name"]][begin:end] for begin, end in zip([0, *ends], ends)]
        return manifest, found
