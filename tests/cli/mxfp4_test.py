"""`trifold convert` reads the experts of a gpt-oss in MXFP4, trains them in bf16, and writes them as bf16."""

import json
import pathlib
import random
import struct
import unittest

from program import GOLDEN, ProgramTest

EXPERTS, WIDTH, INNER = 2, 64, 32
# Sizes that hold whole blocks of 32; all else is the small model's.
CHANGES = {"hidden_size": WIDTH, "intermediate_size": INNER, "num_local_experts": EXPERTS, "num_experts_per_tok": 1, "experts_per_token": 1,
           "num_hidden_layers": 1, "layer_types": ["sliding_attention"], "vocab_size": 50}
QUANTIZED = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
SIZES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def bf16(value):
    """The two bytes of a number that bf16 holds exactly."""
    word = struct.pack("<f", value)
    assert word[:2] == b"\0\0", value
    return word[2:]


def numbers(draw, *shape):
    count = 1
    for size in shape:
        count *= size
    return "BF16", list(shape), b"".join(bf16(draw.randrange(-64, 65) / 256) for _ in range(count))


def quantised(draw, rows, columns):
    """Random blocks and scales of [EXPERTS, rows, columns], and the values by element."""
    groups = columns // 32
    blocks = bytes(draw.randrange(256) for _ in range(EXPERTS * rows * groups * 16))
    scales = bytes(draw.choice((1, 7, 118, 121, 127, 200, 250)) for _ in range(EXPERTS * rows * groups))
    def value(expert, row, column):
        block = (expert * rows + row) * groups + column // 32
        byte = blocks[block * 16 + column % 32 // 2]
        bits = byte >> 4 if column % 2 else byte & 15
        return (-1.0 if bits & 8 else 1.0) * SIZES[bits & 7] * 2.0 ** (scales[block] - 127)
    parts = {"_blocks": ("U8", [EXPERTS, rows, groups, 16], blocks), "_scales": ("U8", [EXPERTS, rows, groups], scales)}
    return parts, value


def write_model(folder, config, tensors):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    header, data = {}, b""
    for name, (kind, shape, piece) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_model(path):
    data = pathlib.Path(path).read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"], data[begin + entry["data_offsets"][0]:begin + entry["data_offsets"][1]])
            for name, entry in header.items()}


class Mxfp4(ProgramTest):
    def setUp(self):
        super().setUp()
        draw = random.Random(4)
        self.config = {**json.loads((GOLDEN / "hf_gpt_oss" / "config.json").read_text()), **CHANGES, "quantization_config": QUANTIZED}
        heads, keys, head = (self.config[name] for name in ("num_attention_heads", "num_key_value_heads", "head_dim"))
        layer = "model.layers.0."
        attention = layer + "self_attn."
        up, self.up = quantised(draw, 2 * INNER, WIDTH)
        down, self.down = quantised(draw, WIDTH, INNER)
        self.tensors = {
            "model.embed_tokens.weight": numbers(draw, 50, WIDTH), "lm_head.weight": numbers(draw, 50, WIDTH),
            "model.norm.weight": numbers(draw, WIDTH), layer + "input_layernorm.weight": numbers(draw, WIDTH),
            layer + "post_attention_layernorm.weight": numbers(draw, WIDTH),
            attention + "q_proj.weight": numbers(draw, heads * head, WIDTH), attention + "q_proj.bias": numbers(draw, heads * head),
            attention + "k_proj.weight": numbers(draw, keys * head, WIDTH), attention + "k_proj.bias": numbers(draw, keys * head),
            attention + "v_proj.weight": numbers(draw, keys * head, WIDTH), attention + "v_proj.bias": numbers(draw, keys * head),
            attention + "o_proj.weight": numbers(draw, WIDTH, heads * head), attention + "o_proj.bias": numbers(draw, WIDTH),
            attention + "sinks": numbers(draw, heads),
            layer + "mlp.router.weight": numbers(draw, EXPERTS, WIDTH), layer + "mlp.router.bias": numbers(draw, EXPERTS),
            layer + "mlp.experts.gate_up_proj_bias": numbers(draw, EXPERTS, 2 * INNER),
            layer + "mlp.experts.down_proj_bias": numbers(draw, EXPERTS, WIDTH),
            **{layer + "mlp.experts.gate_up_proj" + end: part for end, part in up.items()},
            **{layer + "mlp.experts.down_proj" + end: part for end, part in down.items()}}

    def test_values_are_those_of_the_blocks(self):
        """Files hold matrices as [out, in] in blocks, and as [in, out] in bf16."""
        write_model(self.folder / "model", self.config, self.tensors)
        for memory in (256, 8):
            self.trifold("convert", "--load", "model", "--save", f"in{memory}", "--max-memory", memory)
            self.trifold("convert", "--load", f"in{memory}", "--save", f"out{memory}", "--max-memory", memory)
            written = read_model(self.folder / f"out{memory}" / "model.safetensors")
            self.assertNotIn("quantization_config", json.loads((self.folder / f"out{memory}" / "config.json").read_text()))
            experts = "model.layers.0.mlp.experts."
            for name, value, rows, columns in (("gate_up_proj", self.up, 2 * INNER, WIDTH), ("down_proj", self.down, WIDTH, INNER)):
                kind, shape, data = written.pop(experts + name)
                self.assertEqual((kind, shape), ("BF16", [EXPERTS, columns, rows]))
                expected = b"".join(bf16(value(expert, row, column)) for expert in range(EXPERTS)
                                    for column in range(columns) for row in range(rows))
                self.assertTrue(data == expected, name)
            self.assertEqual(written, {name: part for name, part in self.tensors.items() if not name.endswith(("_blocks", "_scales"))})

    def test_refusals(self):
        blocks, scales = (f"model.layers.0.mlp.experts.gate_up_proj_{end}" for end in ("blocks", "scales"))
        def refused(words, config=(), tensors=(), without=()):
            kept = {name: part for name, part in {**self.tensors, **dict(tensors)}.items() if name not in without}
            folder = self.folder / f"model{len(list(self.folder.iterdir()))}"
            write_model(folder, {**self.config, **dict(config)}, kept)
            _, text = self.trifold("convert", "--load", folder, "--save", "x", status=2)
            self.assertIn(words, text)
            self.assertEqual(list((self.folder / "x").glob("step_*")), [])
        kind, shape, data = self.tensors[scales]
        refused(f"tensor {scales} is missing", without=[scales])
        refused(f"tensor {scales}, row 0: a block has values that are not finite", tensors={scales: (kind, shape, b"\xff" + data[1:])})
        refused(f"tensor {scales} is [2, 128, 1]; config.json makes it [2, 64, 2]", tensors={scales: (kind, [2, 128, 1], data)})
        refused(f"tensor {blocks} is of type I8; MXFP4 has bytes", tensors={blocks: ("I8", *self.tensors[blocks][1:])})
        refused("has the method \"fp8\"; only \"mxfp4\" is supported", {"quantization_config": {"quant_method": "fp8"}})
        refused("'quantization_config': 'group_size' is 16", {"quantization_config": {**QUANTIZED, "group_size": 16}})
        refused("'swiglu_alpha' is 1.5; only 1.702 and 1 are supported", {"swiglu_alpha": 1.5})
        refused("'swiglu_limit' is 0; a number above 0", {"swiglu_limit": 0})
        refused("'experts_per_token' is 2, but 'num_experts_per_tok' is 1", {"experts_per_token": 2})
        refused("'initial_context_length' is 16, but", {"initial_context_length": 16})


if __name__ == "__main__":
    unittest.main()
