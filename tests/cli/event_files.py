"""An independent reader of TensorBoard's event files, from the published formats alone: TFRecord with masked CRC-32C, and the
messages Event and Summary in protobuf's encoding."""

import shutil
import struct
import subprocess
import unittest

from program import TRIFOLD


def table():
    rows = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        rows.append(byte)
    return rows


TABLE = table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def tf_records(data):
    """The data of every record; a checksum or length that is wrong is an error."""
    at = 0
    while at < len(data):
        length, length_crc = struct.unpack_from("<QI", data, at)
        if masked(data[at:at + 8]) != length_crc:
            raise ValueError(f"byte {at}: the checksum of the length is wrong")
        record = data[at + 12:at + 12 + length]
        (crc,) = struct.unpack_from("<I", data, at + 12 + length)
        if masked(record) != crc:
            raise ValueError(f"byte {at}: the checksum of the data is wrong")
        yield record
        at += 16 + length


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    """(number, value) of a message's fields: whole numbers, or bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(kind)
            if size is None:
                size, at = varint(data, at)
            value, at = data[at:at + size], at + size
            if len(value) != size:
                raise ValueError("a field is cut off")
        yield key >> 3, value


def first(message, number, default=b""):
    return next((value for field, value in fields(message) if field == number), default)


class Events:
    """What a file says: scalars {tag: [(step, value)]}, texts {tag: [(step, text)]}, restarts [step]."""

    def __init__(self, path):
        self.scalars, self.texts, self.restarts, self.version, self.times = {}, {}, [], None, []
        for record in tf_records(path.read_bytes()):
            self.add(record)

    def add(self, event):
        step = first(event, 2, 0)
        self.times.append(struct.unpack("<d", first(event, 1))[0])
        for number, value in fields(event):
            if number == 3:
                self.version = value.decode()
            elif number == 7 and first(value, 1) == 1:
                self.restarts.append(step)
            elif number == 5:
                for _, one in fields(value):
                    self.add_value(step, one)

    def add_value(self, step, value):
        tag = first(value, 1).decode()
        scalar = first(value, 2, None)
        if scalar is not None:
            self.scalars.setdefault(tag, []).append((step, struct.unpack("<f", scalar)[0]))
            return
        plugin = first(first(first(value, 9), 1), 1)
        tensor = first(value, 8)
        if plugin != b"text" or first(tensor, 1) != 7:
            raise ValueError(f"{tag}: neither a scalar nor a text")
        self.texts.setdefault(tag, []).append((step, first(tensor, 8).decode()))


def skip_without_protozero(test):
    """Skips a test case where the program was built without the encoder of these files."""
    (test.folder / "tiny").write_text("to be or not to be " * 40)
    line = ("pretrain --num-layers 1 --hidden-size 8 --num-attention-heads 1 --seq-length 8 --micro-batch-size 1 --lr 1e-3 "
            "--lr-decay-style constant --split 1,0,0 --train-iters 1 --data-path tiny --tensorboard-dir probe").split()
    done = subprocess.run([TRIFOLD, *line], cwd=test.folder, capture_output=True, text=True, timeout=60, check=False)
    if "built without protozero" in done.stderr:
        raise unittest.SkipTest("the program was built without protozero")
    shutil.rmtree(test.folder / "probe")
    (test.folder / "tiny").unlink()
