"""Logits of a GPT-2, Llama or BERT in Hugging Face's format, in PyTorch, with which `trifold convert` is compared.

The folder is read here by hand (config.json, safetensors, NumPy), so transformers is not needed.

  hugging_face_torch.py make             writes tests/golden/hf_gpt2, hf_llama, hf_mixtral, hf_qwen2_moe, hf_qwen3_moe and hf_bert: small random models and their logits
  hugging_face_torch.py logits FOLDER    prints the logits of a fixed text of ids as JSON, in f64
  hugging_face_torch.py check FOLDER     compares them with those of transformers, which must be installed
"""

import json
import math
import pathlib
import struct
import sys

import numpy as np
import torch

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"
TYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.uint16, "U8": np.uint8, "I64": np.int64,
         "BOOL": np.bool_}
PRECISION = {torch.float64: "F64", torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.uint8: "U8", torch.int64: "I64"}


def read_file(path):
    data = pathlib.Path(path).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    for name, entry in json.loads(data[8:8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        array = np.frombuffer(data[begin:end], TYPES[entry["dtype"]]).reshape(entry["shape"])
        if entry["dtype"] == "BF16":
            array = (array.astype(np.uint32) << 16).view(np.float32)
        yield name, torch.from_numpy(array.astype(np.float64))


def read_model(folder):
    """Configuration, and tensors by name without the prefix of a model with a head."""
    folder = pathlib.Path(folder)
    config = json.loads((folder / "config.json").read_text())
    index = folder / "model.safetensors.index.json"
    files = sorted(set(json.loads(index.read_text())["weight_map"].values())) if index.exists() else ["model.safetensors"]
    tensors = {}
    for file in files:
        for name, tensor in read_file(folder / file):
            for prefix in ("transformer.", "model.", "bert."):
                name = name.removeprefix(prefix)
            name = name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
            tensors[name] = tensor
    return config, tensors


def attend(q, k, v):
    """[H, T, D] each; causal."""
    scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
    future = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1)
    return torch.softmax(scores.masked_fill(future, -math.inf), -1) @ v


def heads(x, count):
    return x.reshape(x.shape[0], count, -1).transpose(0, 1)


def joined(x):
    return x.transpose(0, 1).reshape(x.shape[1], -1)


def gpt2_logits(config, w, ids):
    def norm(x, name):
        return torch.nn.functional.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"],
                                              config["layer_norm_epsilon"])

    def linear(x, name):  # Conv1D: [in, out]
        return x @ w[name + ".weight"] + w[name + ".bias"]

    x = w["wte.weight"][ids] + w["wpe.weight"][: len(ids)]
    for i in range(config["n_layer"]):
        q, k, v = linear(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn").chunk(3, -1)
        x = x + linear(joined(attend(*(heads(t, config["n_head"]) for t in (q, k, v)))), f"h.{i}.attn.c_proj")
        up = linear(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc")
        gelu = 0.5 * up * (1 + torch.tanh(math.sqrt(2 / math.pi) * (up + 0.044715 * up**3)))
        x = x + linear(gelu, f"h.{i}.mlp.c_proj")
    head = "wte.weight" if config.get("tie_word_embeddings", True) else "lm_head.weight"
    return norm(x, "ln_f") @ w[head].T


def has_experts(config, layer):
    step = config.get("decoder_sparse_step", 1)
    return layer not in config.get("mlp_only_layers", []) and (layer + 1) % step == 0


def llama_logits(config, w, ids):
    count, groups = config["num_attention_heads"], config["num_key_value_heads"]
    width = config.get("head_dim") or config["hidden_size"] // count

    def norm(x, name):
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + config["rms_norm_eps"]) * w[name + ".weight"]

    def linear(x, name):
        return x @ w[name + ".weight"].T + w.get(name + ".bias", 0)

    frequency = config["rope_theta"] ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angle = torch.arange(len(ids), dtype=torch.float64)[:, None] * frequency
    cos, sin = torch.cos(angle), torch.sin(angle)

    def turn(x):  # [H, T, D]: number i of a head turns with number i + D / 2
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def gated(x, gate, up, down):
        return linear(torch.nn.functional.silu(linear(x, gate)) * linear(x, up), down)

    def mixture(x, name, parts, sum_to_one):
        shares, chosen = torch.softmax(linear(x, name + ".gate"), -1).topk(config["num_experts_per_tok"], -1)
        if sum_to_one:
            shares = shares / shares.sum(-1, keepdim=True)
        return torch.stack([sum(share * gated(row, *(f"{name}.experts.{expert}.{part}" for part in parts))
                                for share, expert in zip(*pair)) for row, pair in zip(x, zip(shares, chosen.tolist()))])

    x = w["embed_tokens.weight"][ids]
    for i in range(config["num_hidden_layers"]):
        y = norm(x, f"layers.{i}.input_layernorm")
        q, k = heads(linear(y, f"layers.{i}.self_attn.q_proj"), count), heads(linear(y, f"layers.{i}.self_attn.k_proj"), groups)
        if config["model_type"] == "qwen3_moe":
            q, k = norm(q, f"layers.{i}.self_attn.q_norm"), norm(k, f"layers.{i}.self_attn.k_norm")
        q, k = turn(q), turn(k).repeat_interleave(count // groups, 0)
        v = heads(linear(y, f"layers.{i}.self_attn.v_proj"), groups).repeat_interleave(count // groups, 0)
        x = x + linear(joined(attend(q, k, v)), f"layers.{i}.self_attn.o_proj")
        y = norm(x, f"layers.{i}.post_attention_layernorm")
        if config["model_type"] == "llama":
            x = x + gated(y, *(f"layers.{i}.mlp.{name}_proj" for name in ("gate", "up", "down")))
        elif config["model_type"] == "mixtral":
            x = x + mixture(y, f"layers.{i}.block_sparse_moe", ("w1", "w3", "w2"), True)
        elif not has_experts(config, i):
            x = x + gated(y, *(f"layers.{i}.mlp.{name}_proj" for name in ("gate", "up", "down")))
        else:
            x = x + mixture(y, f"layers.{i}.mlp", ("gate_proj", "up_proj", "down_proj"), config["norm_topk_prob"])
            if config["model_type"] == "qwen2_moe":
                shared = gated(y, *(f"layers.{i}.mlp.shared_expert.{name}_proj" for name in ("gate", "up", "down")))
                x = x + torch.sigmoid(linear(y, f"layers.{i}.mlp.shared_expert_gate")) * shared
    head = "embed_tokens.weight" if config["tie_word_embeddings"] else "lm_head.weight"
    return norm(x, "norm") @ w[head].T


def bert_logits(config, w, ids):
    """Of the words and of the pair. The second half of the ids is the second sentence; the last two are padding."""
    types, real = (torch.arange(len(ids)) >= len(ids) // 2).long(), len(ids) - 2

    def norm(x, name):
        return torch.nn.functional.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], config["layer_norm_eps"])

    def linear(x, name):
        return x @ w[name + ".weight"].T + w[name + ".bias"]

    def gelu(x):
        return torch.nn.functional.gelu(x, approximate="none" if config["hidden_act"] == "gelu" else "tanh")

    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][types], "embeddings.LayerNorm")
    for i in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{i}."
        q, k, v = (heads(linear(x, f"{layer}attention.self.{name}"), config["num_attention_heads"])
                   for name in ("query", "key", "value"))
        mixed = torch.softmax(q @ k[:, :real].transpose(1, 2) / math.sqrt(q.shape[-1]), -1) @ v[:, :real]
        x = norm(x + linear(joined(mixed), layer + "attention.output.dense"), layer + "attention.output.LayerNorm")
        up = gelu(linear(x, layer + "intermediate.dense"))
        x = norm(x + linear(up, layer + "output.dense"), layer + "output.LayerNorm")
    y = norm(gelu(linear(x, "cls.predictions.transform.dense")), "cls.predictions.transform.LayerNorm")
    words = y @ w["embeddings.word_embeddings.weight"].T + w["cls.predictions.bias"]
    return words, linear(torch.tanh(linear(x[:1], "pooler.dense")), "cls.seq_relationship")


def ids_of(config):
    length = min(12, config.get("n_positions") or config["max_position_embeddings"])
    return [(7 * i * i + 3 * i + 1) % config["vocab_size"] for i in range(length)]


def logits_of(folder):
    config, tensors = read_model(folder)
    ids = ids_of(config)
    compute = {"gpt2": gpt2_logits, "bert": bert_logits}.get(config["model_type"], llama_logits)
    found = compute(config, tensors, ids)
    return ids, found if isinstance(found, tuple) else (found,)


def write_file(path, tensors):
    header, place = {"__metadata__": {"format": "pt"}}, 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": PRECISION[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [place, place + size]}
        place += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            raw = tensor.contiguous()
            file.write((raw.view(torch.int16) if raw.dtype == torch.bfloat16 else raw).numpy().tobytes())


def random_tensors(shapes, dtype):
    """Every number different: gains around 1, the rest around 0."""
    out = {}
    for name, shape in shapes.items():
        numbers = torch.randn(shape) * 0.3
        out[name] = (numbers + 1 if "norm" in name.lower() or "ln_" in name and name.endswith("weight") else numbers).to(dtype)
    return out


def gpt2_shapes(c):
    n, f = c["n_embd"], 4 * c["n_embd"]
    shapes = {"wte.weight": (c["vocab_size"], n), "wpe.weight": (c["n_positions"], n)}
    for i in range(c["n_layer"]):
        parts = {"ln_1.weight": (n,), "ln_1.bias": (n,), "attn.c_attn.weight": (n, 3 * n), "attn.c_attn.bias": (3 * n,),
                 "attn.c_proj.weight": (n, n), "attn.c_proj.bias": (n,), "ln_2.weight": (n,), "ln_2.bias": (n,),
                 "mlp.c_fc.weight": (n, f), "mlp.c_fc.bias": (f,), "mlp.c_proj.weight": (f, n), "mlp.c_proj.bias": (n,)}
        shapes.update({f"h.{i}.{name}": shape for name, shape in parts.items()})
    return {**shapes, "ln_f.weight": (n,), "ln_f.bias": (n,)}


def llama_shapes(c):
    n, f, d = c["hidden_size"], c["intermediate_size"], c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    q, kv = c["num_attention_heads"] * d, c["num_key_value_heads"] * d
    shapes = {"model.embed_tokens.weight": (c["vocab_size"], n)}
    for i in range(c["num_hidden_layers"]):
        parts = {"input_layernorm": (n,), "self_attn.q_proj": (q, n), "self_attn.k_proj": (kv, n),
                 "self_attn.v_proj": (kv, n), "self_attn.o_proj": (n, q), "post_attention_layernorm": (n,)}
        if c["model_type"] == "llama" or not has_experts(c, i):
            parts.update({"mlp.gate_proj": (f, n), "mlp.up_proj": (f, n), "mlp.down_proj": (n, f)})
        else:
            parts.update(mixture_shapes(c))
        shapes.update({f"model.layers.{i}.{name}.weight": shape for name, shape in parts.items()})
        if c.get("qkv_bias"):
            shapes.update({f"model.layers.{i}.self_attn.{name}_proj.bias": (size,) for name, size in (("q", q), ("k", kv), ("v", kv))})
    return {**shapes, "model.norm.weight": (n,), "lm_head.weight": (c["vocab_size"], n)}


def mixture_shapes(c):
    n = c["hidden_size"]
    if c["model_type"] == "mixtral":
        name, parts, f, parameters = "block_sparse_moe", ("w1", "w3", "w2"), c["intermediate_size"], {}
    else:
        name, parts, f = "mlp", ("gate_proj", "up_proj", "down_proj"), c["moe_intermediate_size"]
        if c["model_type"] == "qwen3_moe":
            parameters = {"self_attn.q_norm": (c["head_dim"],), "self_attn.k_norm": (c["head_dim"],)}
        else:
            wide = c["shared_expert_intermediate_size"]
            parameters = {f"mlp.shared_expert.{part}": (n, wide) if part == parts[2] else (wide, n) for part in parts}
            parameters["mlp.shared_expert_gate"] = (1, n)
    count = c.get("num_local_experts") or c["num_experts"]
    parameters[name + ".gate"] = (count, n)
    for expert in range(count):
        for part in parts:
            parameters[f"{name}.experts.{expert}.{part}"] = (n, f) if part == parts[2] else (f, n)
    return parameters


def bert_shapes(c):
    n, f = c["hidden_size"], c["intermediate_size"]

    def norm(name):
        return {name + ".LayerNorm.weight": (n,), name + ".LayerNorm.bias": (n,)}

    def linear(name, out, size):
        return {name + ".weight": (out, size), name + ".bias": (out,)}

    shapes = {f"bert.embeddings.{name}_embeddings.weight": (c[size], n) for name, size in (
        ("word", "vocab_size"), ("position", "max_position_embeddings"), ("token_type", "type_vocab_size"))}
    shapes.update(norm("bert.embeddings"))
    for i in range(c["num_hidden_layers"]):
        layer = f"bert.encoder.layer.{i}."
        for name in ("query", "key", "value"):
            shapes.update(linear(f"{layer}attention.self.{name}", n, n))
        shapes.update({**linear(layer + "attention.output.dense", n, n), **norm(layer + "attention.output")})
        shapes.update({**linear(layer + "intermediate.dense", f, n), **linear(layer + "output.dense", n, f)})
        shapes.update(norm(layer + "output"))
    shapes.update({**linear("bert.pooler.dense", n, n), "cls.predictions.bias": (c["vocab_size"],)})
    shapes.update({**linear("cls.predictions.transform.dense", n, n), **norm("cls.predictions.transform")})
    return {**shapes, **linear("cls.seq_relationship", 2, n)}


def make():
    torch.manual_seed(5)
    # Like the first release of GPT-2: names without a prefix, and the mask of attention among the tensors.
    gpt2 = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new", "n_layer": 2,
            "n_embd": 24, "n_head": 3, "n_positions": 16, "n_ctx": 16, "vocab_size": 67, "layer_norm_epsilon": 1e-4,
            "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1, "initializer_range": 0.02}
    tensors = random_tensors(gpt2_shapes(gpt2), torch.float32)
    for i in range(gpt2["n_layer"]):
        tensors[f"h.{i}.attn.bias"] = torch.ones(1, 1, 16, 16).tril()
    write_golden("hf_gpt2", gpt2, [tensors])
    # In bf16, in two files, with fewer key heads than heads and an output head of its own.
    llama = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "num_hidden_layers": 2,
             "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 40,
             "max_position_embeddings": 32, "vocab_size": 61, "rms_norm_eps": 1e-5, "rope_theta": 50000.0,
             "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False, "initializer_range": 0.02}
    tensors = list(random_tensors(llama_shapes(llama), torch.bfloat16).items())
    write_golden("hf_llama", llama, [dict(tensors[:9]), dict(tensors[9:])])
    # Like the first release of BERT: gelu with erf, the norms' gamma and beta, the decoder and positions written too.
    bert = {"architectures": ["BertForPreTraining"], "model_type": "bert", "hidden_act": "gelu", "num_hidden_layers": 2,
            "hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 40, "max_position_embeddings": 16,
            "type_vocab_size": 2, "vocab_size": 67, "layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.1,
            "attention_probs_dropout_prob": 0.2, "initializer_range": 0.02}
    tensors = random_tensors(bert_shapes(bert), torch.float32)
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"]
    tensors["bert.embeddings.position_ids"] = torch.arange(16)[None]
    older = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    for name in [name for name in tensors if name.startswith("bert.encoder.layer.1.") and "LayerNorm" in name]:
        for now, then in older.items():
            if name.endswith(now):
                tensors[name.replace(now, then)] = tensors.pop(name)
    write_golden("hf_bert", bert, [tensors])
    # Two choices of four experts whose shares sum to 1; and three of six, which do not, with norms of heads.
    mixtral = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_act": "silu", "num_hidden_layers": 2,
               "hidden_size": 24, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 8, "intermediate_size": 20,
               "num_local_experts": 4, "num_experts_per_tok": 2, "max_position_embeddings": 32, "vocab_size": 61,
               "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False, "initializer_range": 0.02,
               "output_router_logits": False}
    write_golden("hf_mixtral", mixtral, [random_tensors(llama_shapes(mixtral), torch.bfloat16)])
    qwen3 = {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_act": "silu", "num_hidden_layers": 2,
             "hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 40,
             "moe_intermediate_size": 12, "num_experts": 6, "num_experts_per_tok": 3, "norm_topk_prob": False,
             "decoder_sparse_step": 1, "mlp_only_layers": [], "attention_bias": False, "max_position_embeddings": 32,
             "vocab_size": 61, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "tie_word_embeddings": False,
             "initializer_range": 0.02, "output_router_logits": False}
    tensors = list(random_tensors(llama_shapes(qwen3), torch.float32).items())
    write_golden("hf_qwen3_moe", qwen3, [dict(tensors[:21]), dict(tensors[21:])])
    torch.manual_seed(6)
    # A first layer without experts, and in the others an expert for all tokens, with a gate.
    qwen2 = {"architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "hidden_act": "silu", "num_hidden_layers": 3,
             "hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 40,
             "moe_intermediate_size": 12, "shared_expert_intermediate_size": 20, "num_experts": 6, "num_experts_per_tok": 3,
             "norm_topk_prob": False, "decoder_sparse_step": 1, "mlp_only_layers": [0], "qkv_bias": True,
             "max_position_embeddings": 32, "vocab_size": 61, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
             "tie_word_embeddings": False, "initializer_range": 0.02, "output_router_logits": False}
    write_golden("hf_qwen2_moe", qwen2, [random_tensors(llama_shapes(qwen2), torch.float32)])


def write_golden(name, config, files):
    folder = GOLDEN / name
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    places = {}
    for number, tensors in enumerate(files, 1):
        file = "model.safetensors" if len(files) == 1 else f"model-{number:05}-of-{len(files):05}.safetensors"
        write_file(folder / file, tensors)
        places.update({tensor: file for tensor in tensors})
    if len(files) > 1:
        total = sum(t.numel() * t.element_size() for tensors in files for t in tensors.values())
        index = {"metadata": {"total_size": total}, "weight_map": places}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")
    ids, logits = logits_of(folder)
    rows = ",\n ".join(json.dumps([round(x, 9) for x in row]) for part in logits for row in part.tolist())
    (folder / "logits.json").write_text(f'{{"ids": {json.dumps(ids)},\n"logits": [{rows}]}}\n')


def check(folder):
    import transformers

    ids, ours = logits_of(folder)
    tokens, arguments = torch.tensor([ids]), {}
    kind = transformers.AutoModelForCausalLM
    if len(ours) == 2:  # a BERT, as bert_logits reads the ids
        kind, at = transformers.AutoModelForPreTraining, torch.arange(len(ids))[None]
        arguments = {"token_type_ids": (at >= len(ids) // 2).long(), "attention_mask": (at < len(ids) - 2).long()}
    model = kind.from_pretrained(folder, torch_dtype=torch.float32).double().eval()
    with torch.no_grad():
        found = model(tokens, **arguments)
    theirs = (found.prediction_logits[0], found.seq_relationship_logits) if arguments else (found.logits[0],)
    difference = max((a - b).abs().max().item() for a, b in zip(ours, theirs))
    print(f"transformers {transformers.__version__}: {type(model).__name__}, largest logit "
          f"{max(part.abs().max().item() for part in theirs):.3f}, largest difference {difference:.2e}")
    return 0 if difference < 1e-5 else 1


def main():
    if sys.argv[1:] == ["make"]:
        make()
    elif len(sys.argv) == 3 and sys.argv[1] == "logits":
        ids, logits = logits_of(sys.argv[2])
        print(json.dumps({"ids": ids, "logits": [row for part in logits for row in part.tolist()]}))
    elif len(sys.argv) == 3 and sys.argv[1] == "check":
        return check(sys.argv[2])
    else:
        sys.exit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
