"""Logits, loss and gradients of small DeepSeek-V3s in Hugging Face's format, in PyTorch and f64, with which Trifold is compared.

  deepseek_torch.py make    writes tests/golden/hf_deepseek_v3: a small random model, its logits, and the gradients of its loss;
                            and hf_deepseek_modules, which has two modules that predict further tokens, whose losses are in
                            logits.json, and in the gradients with the weight 0.1 / 2 each
  deepseek_torch.py check   compares them with those of transformers, which must be installed and computes in f32
"""

import json
import math
import sys

import torch
from hugging_face_torch import GOLDEN, heads, ids_of, joined, read_model, write_file

FOLDER = GOLDEN / "hf_deepseek_v3"
MODULES_FOLDER = GOLDEN / "hf_deepseek_modules"
MODULES_FACTOR = 0.1  # of the mean of the modules' losses

# A dense layer, then two with experts in groups; stretched angles that scale the two parts of a key differently.
CONFIG = {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_act": "silu", "num_hidden_layers": 3,
          "hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2, "q_lora_rank": 10, "kv_lora_rank": 8,
          "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 5, "intermediate_size": 24, "moe_intermediate_size": 8,
          "first_k_dense_replace": 1, "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 4, "n_group": 4,
          "topk_group": 2, "routed_scaling_factor": 2.5, "norm_topk_prob": True, "scoring_func": "sigmoid",
          "topk_method": "noaux_tc", "max_position_embeddings": 64, "vocab_size": 61, "rms_norm_eps": 1e-6,
          "rope_theta": 10000.0, "rope_interleave": True, "attention_bias": False, "tie_word_embeddings": False,
          "initializer_range": 0.02,
          "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32.0,
                           "beta_slow": 1.0, "mscale": 0.707, "mscale_all_dim": 1.0}}
# A dense layer, one with experts, and two modules with experts.
CONFIG_WITH_MODULES = {**CONFIG, "num_hidden_layers": 2, "num_nextn_predict_layers": 2}


def shapes_of(c):
    n, count = c["hidden_size"], c["num_attention_heads"]
    plain, turned, value = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    shapes = {"embed_tokens.weight": (c["vocab_size"], n)}

    def network(name, inner):
        return {name + ".gate_proj.weight": (inner, n), name + ".up_proj.weight": (inner, n), name + ".down_proj.weight": (n, inner)}

    for i in range(c["num_hidden_layers"] + c.get("num_nextn_predict_layers", 0)):
        layer = f"layers.{i}."
        if i >= c["num_hidden_layers"]:
            shapes.update({layer + "enorm.weight": (n,), layer + "hnorm.weight": (n,), layer + "eh_proj.weight": (n, 2 * n),
                           layer + "shared_head.norm.weight": (n,)})
        parts = {"input_layernorm": (n,), "self_attn.q_a_proj": (c["q_lora_rank"], n), "self_attn.q_a_layernorm": (c["q_lora_rank"],),
                 "self_attn.q_b_proj": (count * (plain + turned), c["q_lora_rank"]),
                 "self_attn.kv_a_proj_with_mqa": (c["kv_lora_rank"] + turned, n),
                 "self_attn.kv_a_layernorm": (c["kv_lora_rank"],),
                 "self_attn.kv_b_proj": (count * (plain + value), c["kv_lora_rank"]),
                 "self_attn.o_proj": (n, count * value), "post_attention_layernorm": (n,)}
        shapes.update({f"{layer}{name}.weight": shape for name, shape in parts.items()})
        if i < c["first_k_dense_replace"]:
            shapes.update(network(layer + "mlp", c["intermediate_size"]))
            continue
        shapes.update({layer + "mlp.gate.weight": (c["n_routed_experts"], n),
                       layer + "mlp.gate.e_score_correction_bias": (c["n_routed_experts"],)})
        for expert in range(c["n_routed_experts"]):
            shapes.update(network(f"{layer}mlp.experts.{expert}", c["moe_intermediate_size"]))
        shapes.update(network(layer + "mlp.shared_experts", c["n_shared_experts"] * c["moe_intermediate_size"]))
    return {**shapes, "norm.weight": (n,), "lm_head.weight": (c["vocab_size"], n)}


def angles_of(c, length):
    """[T, pairs], as YaRN stretches them."""
    rope, width = c["rope_scaling"], c["qk_rope_head_dim"]

    def dim_that_turns(times):
        return width * math.log(rope["original_max_position_embeddings"] / (times * 2 * math.pi)) / (2 * math.log(c["rope_theta"]))

    low = max(math.floor(dim_that_turns(rope["beta_fast"])), 0)
    high = min(math.ceil(dim_that_turns(rope["beta_slow"])), width - 1)
    pairs = torch.arange(width // 2, dtype=torch.float64)
    scaled = ((pairs - low) / max(high - low, 0.001)).clamp(0, 1)
    plain = c["rope_theta"] ** (-2 * pairs / width)
    return torch.arange(length, dtype=torch.float64)[:, None] * (plain * (1 - scaled) + plain / rope["factor"] * scaled)


def growth(c, mscale):
    return 0.1 * mscale * math.log(c["rope_scaling"]["factor"]) + 1


def logits_of(c, w, ids):
    """Those of the model [T, V], and of module k [T - k - 1, V] at the positions whose label k places further is in the text."""
    count, plain, turned = c["num_attention_heads"], c["qk_nope_head_dim"], c["qk_rope_head_dim"]
    rope = c["rope_scaling"]
    angle = angles_of(c, len(ids))
    factor = growth(c, rope["mscale"]) / growth(c, rope["mscale_all_dim"])
    cos, sin = torch.cos(angle) * factor, torch.sin(angle) * factor
    scale = growth(c, rope["mscale_all_dim"]) ** 2 / math.sqrt(plain + turned)

    def norm(x, name):
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + c["rms_norm_eps"]) * w[name + ".weight"]

    def linear(x, name):
        return x @ w[name + ".weight"].T

    def network(x, name):
        return linear(torch.nn.functional.silu(linear(x, name + ".gate_proj")) * linear(x, name + ".up_proj"), name + ".down_proj")

    def turn(x):  # [H, T, turned]: neighbours are a pair
        a, b = x[..., 0::2], x[..., 1::2]
        c, s = cos[: x.shape[1]], sin[: x.shape[1]]
        return torch.stack([a * c - b * s, b * c + a * s], -1).flatten(-2)

    def attention(x, name):
        q = heads(linear(norm(linear(x, name + ".q_a_proj"), name + ".q_a_layernorm"), name + ".q_b_proj"), count)
        latent, key = linear(x, name + ".kv_a_proj_with_mqa").split([c["kv_lora_rank"], turned], -1)
        kv = heads(linear(norm(latent, name + ".kv_a_layernorm"), name + ".kv_b_proj"), count)
        key = turn(key[None]).expand(count, -1, -1)
        q = torch.cat([q[..., :plain], turn(q[..., plain:])], -1)
        k = torch.cat([kv[..., :plain], key], -1)
        future = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
        scores = (q @ k.transpose(1, 2) * scale).masked_fill(future, -math.inf)
        return linear(joined(torch.softmax(scores, -1) @ kv[..., plain:]), name + ".o_proj")

    def mixture(x, name):
        scores = torch.sigmoid(linear(x, name + ".gate"))
        for_choice = (scores + w[name + ".gate.e_score_correction_bias"]).detach()
        groups = for_choice.view(len(x), c["n_group"], -1)
        best = groups.topk(2, -1)[0].sum(-1).topk(c["topk_group"], -1)[1]
        kept = torch.zeros(len(x), c["n_group"]).scatter_(1, best, 1).bool()
        chosen = groups.masked_fill(~kept[..., None], -math.inf).flatten(1).topk(c["num_experts_per_tok"], -1)[1]
        shares = scores.gather(1, chosen)
        shares = shares / shares.sum(-1, keepdim=True) * c["routed_scaling_factor"]
        rows = [sum(share * network(row, f"{name}.experts.{expert}") for share, expert in zip(*pair))
                for row, pair in zip(x, zip(shares, chosen.tolist()))]
        return torch.stack(rows) + network(x, name + ".shared_experts")

    def layer(x, i):
        x = x + attention(norm(x, f"layers.{i}.input_layernorm"), f"layers.{i}.self_attn")
        y = norm(x, f"layers.{i}.post_attention_layernorm")
        return x + (network if i < c["first_k_dense_replace"] else mixture)(y, f"layers.{i}.mlp")

    x = w["embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        x = layer(x, i)
    x = norm(x, "norm")
    logits = [linear(x, "lm_head")]
    for k in range(1, c.get("num_nextn_predict_layers", 0) + 1):
        name = f"layers.{c['num_hidden_layers'] + k - 1}."
        positions = len(ids) - 1 - k
        tokens = w["embed_tokens.weight"][ids[k:k + positions]]
        both = torch.cat([norm(tokens, name + "enorm"), norm(x[:positions], name + "hnorm")], -1)
        x = norm(layer(linear(both, name + "eh_proj"), c["num_hidden_layers"] + k - 1), name + "shared_head.norm")
        logits.append(linear(x, "lm_head"))
    return logits


def compute(folder):
    """ids, logits, loss of the next ids, gradients by the names of the files, and losses of modules."""
    config, w = read_model(folder)
    ids = ids_of(config)
    w = {name: tensor for name, tensor in w.items() if not name.endswith(("embed_tokens.weight", "head.weight")) or name.count(".") == 1}
    for name, tensor in w.items():
        tensor.requires_grad_("e_score" not in name)
    logits, *later = logits_of(config, w, ids)
    loss = torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:]))
    losses = [torch.nn.functional.cross_entropy(x, torch.tensor(ids[k:])) for k, x in enumerate(later, 2)]
    (loss + sum(MODULES_FACTOR / len(losses) * each for each in losses)).backward()
    gradients = {(name if name.startswith("lm_head") else "model." + name):
                 torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
                 for name, tensor in w.items() if tensor.requires_grad}
    return ids, logits.detach(), loss.item(), gradients, [each.item() for each in losses]


def make(folder, config):
    torch.manual_seed(7)
    tensors = {}
    for name, shape in shapes_of(config).items():
        numbers = torch.randn(shape) * (0.1 if "e_score" in name else 0.3)
        full = name if name.startswith("lm_head") else "model." + name
        tensors[full] = numbers + 1 if "norm" in name else numbers
        if "e_score" not in name:
            tensors[full] = tensors[full].to(torch.bfloat16)  # as DeepSeek's own files, whose biases are f32
    for i in range(config.get("num_nextn_predict_layers", 0)):
        layer = f"model.layers.{config['num_hidden_layers'] + i}."
        tensors[layer + "embed_tokens.weight"] = tensors["model.embed_tokens.weight"].clone()
        tensors[layer + "shared_head.head.weight"] = tensors["lm_head.weight"].clone()
    folder.mkdir(exist_ok=True)
    items = list(tensors.items())
    write_golden_files(folder, config, items)
    ids, logits, loss, gradients, losses = compute(folder)
    rows = ",\n ".join(json.dumps([round(x, 9) for x in row]) for row in logits.tolist())
    later = f'"module_losses": {losses!r},\n' if losses else ""
    (folder / "logits.json").write_text(f'{{"ids": {json.dumps(ids)},\n"loss": {loss!r},\n{later}"logits": [{rows}]}}\n')
    write_file(folder / "gradients.safetensors", gradients)


def write_golden_files(folder, config, items):
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    files = [dict(items[:40]), dict(items[40:])]
    places = {}
    for number, tensors in enumerate(files, 1):
        file = f"model-{number:05}-of-{len(files):05}.safetensors"
        write_file(folder / file, tensors)
        places.update({tensor: file for tensor in tensors})
    total = sum(t.numel() * t.element_size() for tensors in files for t in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


def check():
    import transformers

    ids, logits, loss, gradients, _ = compute(FOLDER)
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER, torch_dtype=torch.float32, attn_implementation="eager")
    model.eval()
    tokens = torch.tensor([ids])
    found = model(tokens).logits[0]
    torch.nn.functional.cross_entropy(found[:-1], tokens[0, 1:]).backward()
    worst = (found - logits).abs().max().item()
    print(f"transformers {transformers.__version__}: largest logit {logits.abs().max().item():.3f}, largest difference {worst:.2e}")
    for name, parameter in model.named_parameters():
        theirs = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        difference = (theirs - gradients[name]).abs().max().item() / max(theirs.abs().max().item(), 1e-3)
        worst = max(worst, difference)
        if difference > 1e-5:
            print(f"{name}: relative difference {difference:.2e}")
    print(f"worst of all {worst:.2e}, {len(gradients)} gradients")
    return 0 if worst < 1e-5 else 1


if __name__ == "__main__":
    if sys.argv[1:] not in (["make"], ["check"]):
        sys.exit(__doc__)
    if sys.argv[1] == "check":
        sys.exit(check())
    make(FOLDER, CONFIG)
    make(MODULES_FOLDER, CONFIG_WITH_MODULES)
