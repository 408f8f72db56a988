"""Changes to good files, by rules and at random. A change takes a path and a random generator."""

import bz2
import gzip
import json
import lzma
import os
import re
import struct
import zlib

NUMBERS = [b"-1", b"0", b"1e999", b"-1e308", b"1.5", b"72057594037927936", b"9223372036854775807", b"9223372036854775808",
           b"18446744073709551616", b"4294967296", b"2147483648", b"1000000000000", b"nan", b"0x10", b"00"]
TOKENS = [b"null", b"true", b"[]", b"{}", b'""', b'"x"', b"[[[[1]]]]", b'{"a": {}}', b'"\\u0000"', b'"\\ud800"']
PACKERS = {"gzip": gzip, "xz": lzma, "bzip2": bz2}
NASTY = [b"\x1b[2J\x1b]0;x\x07", b"\xff\xfe", b"\x00", b"\xe2\x80\xae", b"\xc0\xaf", b"\r\n", b"\t", b"\xef\xbb\xbf", b"%s%n", b"../" * 8]


def resigned(text):
    """A manifest ends with the CRC of what is before it."""
    body = text[:-12] if text.endswith(b'"\n}\n') else text
    return body + b'%08x"\n}\n' % zlib.crc32(body)


def sealed(target, content):
    """Content as it stands in the file of `target`: signed or packed."""
    if target.seal == "manifest":
        return resigned(content)
    if target.seal == "safetensors":
        return struct.pack("<Q", len(content)) + content
    if target.seal in PACKERS:
        return PACKERS[target.seal].compress(content)
    return content


def opened(target, data):
    if target.seal == "safetensors":
        return data[8:8 + struct.unpack("<Q", data[:8])[0]]
    if target.seal in PACKERS:
        return PACKERS[target.seal].decompress(data)
    return data


def replaced(make):
    """`make()` only when it is needed: what this process holds would count as memory of the programs it starts."""
    return lambda path, _: path.write_bytes(make())


def special(make):
    def change(path, _):
        path.unlink()
        make(path)
    return change


def sparse(path, _):
    with open(path, "wb") as file:
        file.truncate(2 << 30)


def sparse_end(path, _):
    """Huge, but begins and ends as it should."""
    data = path.read_bytes()
    with open(path, "wb") as file:
        file.write(data[: len(data) // 2])
        file.seek(2 << 30)
        file.write(data[len(data) // 2:])


def sparse_line(path, _):
    """Good as far as it goes; then a line that does not end."""
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size + (2 << 30))


def common_rules(target):
    yield "empty", replaced(lambda: b"")
    yield "newline", replaced(lambda: b"\n")
    yield "zeros", replaced(lambda: bytes(4096))
    yield "ones", replaced(lambda: b"\xff" * 4096)
    yield "random", lambda path, generator: path.write_bytes(generator.randbytes(65536))
    yield "long_line", replaced(lambda: b"a" * (4 << 20))
    yield "commas", replaced(lambda: b"," * (4 << 20))
    yield "tabs", replaced(lambda: b"\t" * (1 << 20) + b"\n")
    yield "lines", replaced(lambda: b"\n" * (1 << 20))
    yield "escapes", replaced(lambda: b"\x1b[2J\x1b]0;title\x07" * 100)
    yield "utf16", replaced(lambda: "text in another encoding\n".encode("utf-16") * 100)
    yield "gzip", replaced(lambda: gzip.compress(b"text\n" * 100))
    yield "sparse", sparse
    yield "sparse_end", sparse_end
    yield "sparse_line", sparse_line
    yield "pipe", special(os.mkfifo)
    yield "folder", special(os.mkdir)
    yield "zero_device", special(lambda path: path.symlink_to("/dev/zero"))
    yield "null_device", special(lambda path: path.symlink_to("/dev/null"))
    yield "dangling", special(lambda path: path.symlink_to("nowhere"))
    yield "loop", special(lambda path: path.symlink_to(path.name))
    yield "missing", special(lambda path: None)
    for part in range(8):
        yield f"cut{part}", lambda path, _, part=part: path.write_bytes(path.read_bytes()[: os.path.getsize(path) * part // 8])
    yield "twice", lambda path, _: path.write_bytes(path.read_bytes() * 2)
    yield "trailing", lambda path, _: path.write_bytes(path.read_bytes() + b"\x00garbage")


def json_rules(target):
    """Depth, counts, and every field with values of other types."""
    for name, make in {"lists": lambda: b"[" * 40000, "objects": lambda: b'{"a":' * 40000, "closed": lambda: b"[" * 40000 + b"]" * 40000,
                       "many": lambda: b"[" + b"[]," * 2000000 + b"0]", "many_names": lambda: b"{" + b",".join(b'"%d":0' % i for i in range(1200000)) + b"}",
                       "megabytes_of_brackets": lambda: b"[" * (16 << 20), "long_string": lambda: b'{"a": "' + b"x" * (16 << 20) + b'"}',
                       "escaped": lambda: b'{"\\u001b[2J\\u202e": "\\u001b]0;x\\u0007"}', "number": lambda: b"1" * 100000, "exponent": lambda: b"1e" + b"9" * 1000,
                       "list": lambda: b"[]", "object": lambda: b"{}", "null": lambda: b"null"}.items():
        yield "json_" + name, replaced(lambda make=make: sealed(target, make()))
    good = json.loads(opened(target, (target.files / target.victim).read_bytes()).splitlines()[0] if target.lines
                      else opened(target, (target.files / target.victim).read_bytes()))
    for place in sorted(places_of(good))[: target.most_places]:
        for number, value in enumerate([None, [], {}, "text", -1, 2 ** 56, 2 ** 64, 1.5, "DEEP", True]):
            yield f"json_{'.'.join(map(str, place))}_{number}", replaced_field(target, place, value)
    for place in sorted(places_of(good)):
        value = value_at(good, place)
        if len(json.dumps(value)) > 400:  # many times a small one is long enough
            continue
        if isinstance(value, list) and value:
            yield f"json_{'.'.join(map(str, place))}_long", replaced_field(target, place, value * (5000 // len(value) + 1))
        if isinstance(value, dict) and "type" in value:  # a step of a tokenizer
            steps = {"type": "Sequence", **{name: [value] * 5000 for name in ("pretokenizers", "normalizers", "decoders", "processors")}}
            yield f"json_{'.'.join(map(str, place))}_steps", replaced_field(target, place, steps)


def places_of(value, path=()):
    """The ways to the values, at most two members of each list or large object."""
    if path:
        yield path
    if isinstance(value, dict):
        for key in sorted(value)[:24]:
            yield from places_of(value[key], path + (key,))
    elif isinstance(value, list):
        for index in range(min(2, len(value))):
            yield from places_of(value[index], path + (index,))


def value_at(whole, place):
    for key in place:
        whole = whole[key]
    return whole


def dumped(target, value):
    deep = b"[" * 2000 + b"]" * 2000
    text = json.dumps(value)
    if target.seal == "manifest":  # its last field is its checksum
        value.pop("crc32", None)
        text = json.dumps(value)[:-1] + ',\n"crc32": "00000000"\n}\n'
    return sealed(target, text.encode().replace(b'"DEEP"', deep))


def replaced_field(target, place, value):
    def change(path, _):
        data = opened(target, path.read_bytes())
        lines = data.splitlines() if target.lines else [data]
        whole = json.loads(lines[0])
        at = whole
        for key in place[:-1]:
            at = at[key]
        at[place[-1]] = value
        if target.lines:
            path.write_bytes(sealed(target, b"\n".join([json.dumps(whole).replace('"DEEP"', "[" * 2000 + "]" * 2000).encode(), *lines[1:]])))
        else:
            path.write_bytes(tail_of(target, path, dumped(target, whole)))
    return change


def tail_of(target, path, head):
    """A safetensors file keeps the elements behind its header."""
    if target.seal != "safetensors":
        return head
    data = path.read_bytes()
    return head + data[8 + struct.unpack("<Q", data[:8])[0]:]


def by_rules(target):
    yield from common_rules(target)
    if target.is_json:
        yield from json_rules(target)


def mutated(target):
    def change(path, generator):
        data = path.read_bytes()
        inside = generator.random() < 0.8  # else the packed or signed bytes themselves
        content = bytearray(opened(target, data) if inside else data)
        for _ in range(generator.choice((1, 1, 1, 2, 3, 8))):
            mutate(content, generator, target.is_text)
        path.write_bytes(tail_of(target, path, sealed(target, bytes(content))) if inside else bytes(content))
    return change


def mutate(content, generator, is_text):
    size = len(content)
    at = generator.randrange(size + 1)
    length = min(size - at, generator.choice((1, 2, 4, 16, 64, 1024)))
    kind = generator.randrange(10)
    if kind == 0 and size:
        content[min(at, size - 1)] ^= 1 << generator.randrange(8)
    elif kind == 1:
        content[at:at + length] = generator.randbytes(length)
    elif kind == 2:
        del content[at:at + length]
    elif kind == 3:
        del content[at:]
    elif kind == 4:
        content[at:at] = content[at:at + length] * generator.choice((1, 2, 100))
    elif kind == 5:
        content[at:at] = generator.choice(NASTY)
    elif kind == 6 and size >= 8:
        place = min(at, size - 8)
        value = generator.choice((0, 1, 255, 2 ** 31, 2 ** 32 - 1, 2 ** 56, 2 ** 63, 2 ** 64 - 1))
        width = generator.choice((4, 8))
        content[place:place + width] = (value % 2 ** (8 * width)).to_bytes(width, generator.choice(("little", "big")))
    elif is_text:
        swap_word(content, generator)
    elif size:
        content[at:at] = content[generator.randrange(size):][:length]


def swap_word(content, generator):
    """A number, word or text in quotes becomes something else."""
    words = list(re.finditer(rb'-?\d+(?:\.\d+)?|"[^"\n]{0,40}"|[A-Za-z_]{2,20}', bytes(content[:200000])))
    if not words:
        return
    word = generator.choice(words)
    content[word.start():word.end()] = generator.choice(NUMBERS + TOKENS + NASTY + [generator.choice(words).group()])
