"""A small GPT-2 in Hugging Face's format with weights that follow from a seed, for tests of tasks and of the server."""

import json
import pathlib
import random
import shutil
import struct

POSITIONS = 40
SIZES = {"n_layer": 2, "n_embd": 24, "n_head": 3, "n_positions": POSITIONS, "vocab_size": 600}
CONFIG = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
          "tie_word_embeddings": True, "bos_token_id": 0, "eos_token_id": 0, **SIZES}
END = "<|endoftext|>"


def shapes():
    width, inner = SIZES["n_embd"], 4 * SIZES["n_embd"]
    found = {"wte.weight": [SIZES["vocab_size"], width], "wpe.weight": [POSITIONS, width]}
    for layer in range(SIZES["n_layer"]):
        block = {"ln_1": [width], "attn.c_attn": [width, 3 * width], "attn.c_proj": [width, width], "ln_2": [width],
                 "mlp.c_fc": [width, inner], "mlp.c_proj": [inner, width]}
        for name, shape in block.items():
            found[f"h.{layer}.{name}.weight"] = shape
            found[f"h.{layer}.{name}.bias"] = shape[-1:]
    return {**found, "ln_f.weight": [width], "ln_f.bias": [width]}


def make_model(folder, tokenizer, seed=11):
    """Writes config.json, model.safetensors and the tokenizer's files."""
    folder = pathlib.Path(folder)
    folder.mkdir()
    draw = random.Random(seed)
    header, data = {}, b""
    for name, shape in shapes().items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        middle = 1.0 if "ln_" in name and name.endswith("weight") else 0.0
        piece = struct.pack(f"<{count}f", *(middle + draw.uniform(-0.35, 0.35) for _ in range(count)))
        header[f"transformer.{name}"] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    shutil.copyfile(tokenizer, folder / "tokenizer.json")
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "bos_token": END, "model_max_length": POSITIONS}))


def write_lines(path, items):
    path.write_text("".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items), encoding="utf-8")
