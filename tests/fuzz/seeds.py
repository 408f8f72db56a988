"""Writes good inputs as seeds for the fuzzers, a folder for each fuzzer: seeds.py FOLDER TRIFOLD."""

import json
import pathlib
import struct
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def safetensors(folder):
    def entry(dtype, shape, begin, end):
        return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

    headers = [{"a": entry("F32", [2, 3], 0, 24), "__metadata__": {"format": "pt"}},
               {"a": entry("BF16", [6], 12, 24), "b": entry("U8", [2, 2, 3], 0, 12), "c": entry("F64", [0], 24, 24)},
               {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}]
    for number, header in enumerate(headers):
        (folder / f"header{number}").write_bytes(bytes([6]) + json.dumps(header).encode())
    for model in ("hf_gpt2/model.safetensors", "hf_llama/model-00001-of-00002.safetensors"):
        data = (ROOT / "tests" / "golden" / model).read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        (folder / model.replace("/", "_")).write_bytes(bytes([255]) + data[8:8 + length])
    # Deep, and many.
    for number, text in enumerate(['{"a":' * 40, '{"a": ' + "[" * 40 + "]" * 40 + "}",
                                   json.dumps({str(i): entry("U8", [1], i, i + 1) for i in range(100)})]):
        (folder / f"shape{number}").write_bytes(bytes([100]) + text.encode())
    (folder / "index").write_bytes(b"\0" + (ROOT / "tests/golden/hf_llama/model.safetensors.index.json").read_bytes())


def index(folder):
    def make(code, size, lengths, documents):
        pointers = [size * sum(lengths[:i]) for i in range(len(lengths))]
        head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(lengths), len(documents))
        body = struct.pack(f"<{len(lengths)}i{len(lengths)}q{len(documents)}q", *lengths, *pointers, *documents)
        return struct.pack("<H", size * sum(lengths)) + head + body

    for number, case in enumerate([(8, 2, [3, 4, 0], [0, 1, 3]), (4, 4, [5], [0, 1]), (1, 1, [], [0]), (5, 8, [2, 2], [0, 2])]):
        (folder / f"index{number}").write_bytes(make(*case))


def manifest(folder, trifold):
    scratch = folder / "run"
    line = ("pretrain --num-layers 1 --hidden-size 8 --num-attention-heads 2 --seq-length 8 --micro-batch-size 1 --lr 1e-3 "
            "--train-iters 1 --ranks 2 --zero-stage 1 --threads-per-rank 1").split()
    subprocess.run([trifold, *line, "--data-path", ROOT / "data" / "tinyshakespeare.txt", "--save", scratch], check=True,
                   capture_output=True)
    text = (scratch / "step_0000000001" / "manifest.json").read_bytes()
    subprocess.run(["rm", "-r", scratch], check=True)
    (folder / "manifest").write_bytes(text)
    # A small file, in which most changes matter.
    value = json.loads(text)
    small = {key: value[key] for key in ("format", "version", "save_id", "step", "consumed_samples", "crc_block_bytes")}
    piece = {"file": 0, "offset": [0], "extent": [4], "byte_offset": 8, "crc32": "00000000"}
    other = {**piece, "offset": [4], "extent": [3], "byte_offset": 24}
    small.update(model={}, mesh={}, config={}, state={}, files=value["files"][:1],
                 tensors=[{"name": "param/a", "dtype": "f32", "shape": [7], "pieces": [piece, other]}])
    for name, change in {"deep": {"state": json.loads("[" * 40 + "]" * 40)}, "types": {"step": 2 ** 64, "config": 3},
                         "files": {"files": value["files"][:1] * 60}}.items():
        (folder / name).write_bytes(json.dumps({**small, **change})[:-1].encode() + b',\n"crc32": "00000000"\n}\n')
    (folder / "small").write_bytes(json.dumps(small)[:-1].encode() + b',\n"crc32": "00000000"\n}\n')


def pattern(folder):
    """Those of GPT-2, Llama 3, Qwen 2, and what the dialects write differently."""
    for number, text in enumerate([
            r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
            r"[\p{Han}&&[^a-z]]+|\h{,2}+|a{2,3}?|(?<=\w)\b|(?m).$", r"[[:alpha:]\x{41}-Z]|\d++|(?>a|b)*?|^\v"]):
        (folder / f"pattern{number}").write_text(text)


def json_text(folder):
    """The first byte chooses the limits."""
    for number, text in enumerate(['{"a": {"b": [1, -2, 3.5, 18446744073709551615, "x", true, null]}}', "[" * 70 + "]" * 70,
                                   '{"a":' * 70 + "0" + "}" * 70, "[" + "0," * 1100 + "0]", '"\\"[[[[\\u001b"', "1e999", "-0"]):
        for limits in (8, 255):
            (folder / f"json{number}_{limits}").write_bytes(bytes([limits]) + text.encode())


def graph(folder):
    """The MLP's graph without what the reader ignores, and a graph with writes through views. run.sh cuts inputs at 8192 bytes:
    a longer seed would be no JSON any more."""
    with zipfile.ZipFile(ROOT / "tests/data/own_models/mlp.pt2") as archive:
        whole = json.loads(archive.read("mlp/models/model.json"))
    full = whole["graph_module"]["graph"]
    signature = whole["graph_module"]["signature"]

    def write(name, nodes, values, integers, inputs, outputs):
        parts = {"graph": {"nodes": nodes, "tensor_values": values, "sym_int_values": integers},
                 "signature": {"input_specs": inputs, "output_specs": outputs}}
        head = {key: whole[key] for key in ("schema_version", "torch_version", "range_constraints")}
        (folder / name).write_text(json.dumps({**head, "graph_module": parts}, separators=(",", ":")))

    nodes = [{key: node[key] for key in ("target", "inputs", "outputs", "name")} for node in full["nodes"]]
    for node in nodes:
        for given in node["inputs"]:
            del given["kind"]
    nodes[1]["metadata"] = {"nn_module_stack": "k,,m.Net;a,first,torch.nn.modules.linear.Linear",
                            "stack_trace": 'File "/p/model.py", line 7, in forward\n    y = self.first(x)'}
    values = {name: {key: meta[key] for key in ("dtype", "sizes")} for name, meta in full["tensor_values"].items()}
    write("mlp", nodes, values, {}, signature["input_specs"], signature["output_specs"])

    def tensor(name):
        return {"as_tensor": {"name": name}}

    batch, four, two = values["features"]["sizes"][0], {"as_int": 4}, {"as_int": 2}
    rows = [  # name, operation, arguments after the first one, its tensor, sizes
        ("c", "clone.default", {}, "x", [batch, four]),
        ("left", "slice.Tensor", {"dim": {"as_int": 1}, "start": {"as_int": 0}, "end": two}, "c", [batch, two]),
        ("turned", "permute.default", {"dims": {"as_ints": [1, 0]}}, "left", [two, batch]),
        ("row", "select.int", {"dim": {"as_int": 0}, "index": {"as_int": -1}}, "turned", [batch]),
        ("all", "view.default", {"size": {"as_sym_ints": [{"as_name": "n"}, four]}}, "c", [batch, four]),
        ("f", "fill_.Scalar", {"value": {"as_float": "Infinity"}}, "row", [batch]),
        ("y", "relu.default", {}, "all", [batch, four]),
        ("r", "reshape.default", {"shape": {"as_ints": [-1, 4]}}, "y", [batch, four]),
        ("g", "zero_.default", {}, "r", [batch, four])]
    nodes = [{"target": f"torch.ops.aten.{operation}", "name": name, "outputs": [tensor(name)],
              "inputs": [{"name": "self", "arg": tensor(first)}] + [{"name": key, "arg": arg} for key, arg in more.items()]}
             for name, operation, more, first, _ in rows]
    values = {name: {"dtype": 7, "sizes": sizes} for name, _, _, _, sizes in [*rows, ("x", "", {}, "", [batch, four])]}
    write("writes", nodes, values, {"n": batch}, [{"user_input": {"arg": tensor("x")}}],
          [{"user_output": {"arg": tensor("g")}}])


def main():
    root = pathlib.Path(sys.argv[1])
    for name in ("safetensors", "index", "manifest", "pattern", "graph", "json"):
        (root / name).mkdir(parents=True, exist_ok=True)
    safetensors(root / "safetensors")
    index(root / "index")
    pattern(root / "pattern")
    graph(root / "graph")
    json_text(root / "json")
    manifest(root / "manifest", sys.argv[2])


if __name__ == "__main__":
    main()
