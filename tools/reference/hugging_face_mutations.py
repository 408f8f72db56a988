"""Changes config.json of small random models in hundreds of ways, and compares what Trifold makes of each folder with
transformers: it is refused, or gives the same loss and the same weights; never another model silently.

  pip install torch transformers
  hugging_face_mutations.py build/release/launch/trifold [--families llama,bert] [--count 300] [--seed 1] [--verbose]

A field is removed, gets its default, another value, null, or another name of the same field; rope moves between its old
and new places and gets every type; fields that nobody knows are added. The weights fit the changed file where
transformers can make such a model, and are those of the unchanged one otherwise. Each folder that Trifold takes is
evaluated (a GPT's loss over a few samples, to 1e-5) and written again, which transformers must open as the same model.
"""

import argparse
import collections
import copy
import json
import logging
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import warnings

import torch

os.environ["TRANSFORMERS_VERBOSITY"] = "critical"
warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
import transformers
from hugging_face_models import MASKED, MODELS, OPENED_AS, POSITIONS, SAMPLES, VOCABULARY

transformers.utils.logging.disable_progress_bar()

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "hugging_face_fields.json"
TEXTS = {"hidden_activation": ["gelu", "gelu_new", "silu"], "classifier_activation": ["gelu", "gelu_new", "silu"],
         "classifier_pooling": ["cls", "mean"], "hidden_act": ["silu", "swish", "gelu", "relu", "gelu_new"], "activation_function": ["gelu_new", "gelu", "relu"],
         "summary_type": ["last"]}


# Mutations: each changes a config in place, and returns what it did.

def remove(config, fields, names, random):
    name = random.choice([name for name in config if name not in ("model_type", "architectures")])
    del config[name]
    return f"without {name}"


def set_default(config, fields, names, random):
    name = random.choice(sorted(fields))
    config[name] = fields[name]
    return f"{name} = {fields[name]} (default)"


def another(value, name, random):
    if name in TEXTS:
        return random.choice(TEXTS[name])
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return random.choice([value + 1, max(0, value - 1), 2 * value, value // 2, 1, 0])
    if isinstance(value, float):
        return random.choice([2 * value, value / 2, 0.0, 1.0, value * 10, 1])
    if name == "mlp_only_layers":
        return random.choice([[0], [1], [0, 1]])
    if name == "layer_types":
        return [random.choice(["full_attention", "sliding_attention", "attention"]) for _ in range(2)]
    return random.choice([1, 8, 16, 32, True])


def set_another(config, fields, names, random):
    name = random.choice(sorted(set(fields) | set(config) - {"model_type", "architectures", "rope_parameters"}))
    value = config.get(name)
    config[name] = another(fields.get(name) if value is None else value, name, random)
    return f"{name} = {config[name]}"


def set_null(config, fields, names, random):
    name = random.choice(sorted(fields))
    config[name] = None
    return f"{name} = null"


def rename(config, fields, names, random):
    other, own = random.choice(sorted(names.items())) if names else ("rope_scaling", "rope_parameters")
    if own not in config:
        other, own = own, other
    if own not in config:
        return remove(config, fields, names, random)
    keep = random.random() < 0.3
    config[other] = config[own] if keep else config.pop(own)
    if keep and isinstance(config[other], int) and random.random() < 0.5:
        config[random.choice([own, other])] += 1
    return f"{own} as {other}" + (" too" if keep else "")


def rope_object(random):
    rope = {random.choice(["rope_type", "type"]): random.choice(["default", "linear", "yarn", "yarn", "llama3", "longrope", "dynamic"])}
    choices = {"factor": [4.0, 2, 1, 1.5, None], "original_max_position_embeddings": [8, 16, 32],
               "attention_factor": [0.9, 1.0, 1.3, None], "beta_fast": [32, 16, 4.0, 0], "beta_slow": [1, 2, 0.5],
               "low_freq_factor": [1.0, 2], "high_freq_factor": [4.0, 8, 1.0], "mscale": [0.7, 1.0, 0], "truncate": [True, False, None],
               "mscale_all_dim": [0.5, 1.0, 0], "rope_theta": [500.0, 10000.0, 50000], "partial_rotary_factor": [1.0, 0.5],
               "mrope_section": [[1, 1]], "odd_field": [3], "short_factor": [[1.0, 1.5, 2.0], [1.0, 1.5, 2.0, 3.0], [1.5], [1.0, 2], None],
               "long_factor": [[1.25, 3.0, 20.0], [2.0, 3.0, 4.0, 5.0], [4], [4.0, 8.0], 3.0]}
    usual = {"factor": 0.9, "original_max_position_embeddings": 0.7, "low_freq_factor": 0.8, "high_freq_factor": 0.8,
             "odd_field": 0.03, "partial_rotary_factor": 0.05, "mrope_section": 0.05}
    for name, values in choices.items():
        if random.random() < usual.get(name, 0.3):
            rope[name] = random.choice(values)
    return rope


def move_rope(config, fields, names, random):
    if "rope_parameters" not in fields:
        return set_another(config, fields, names, random)
    how = random.choice(["parameters", "scaling", "both", "theta", "original", "old", "nothing", "nested", "empty"])
    if how == "parameters":
        config["rope_parameters"] = rope_object(random)
    elif how == "both":
        config["rope_scaling"] = rope_object(random)
    elif how == "scaling":
        config.pop("rope_parameters", None)
        config["rope_scaling"] = rope_object(random)
    elif how == "theta":
        config["rope_theta"] = random.choice([500.0, 1e6])
    elif how == "original":
        config["original_max_position_embeddings"] = random.choice([8, 16])
        config["rope_parameters"] = rope_object(random)
    elif how == "old":
        config["rope_theta"] = config.pop("rope_parameters", {}).get("rope_theta", 500.0)
        config["rope_scaling"] = random.choice([None, rope_object(random)])
    elif how == "nothing":
        config.pop("rope_parameters", None)
    elif how == "nested":
        config["rope_parameters"] = {"full_attention": rope_object(random)}
    else:
        config["rope_parameters"] = random.choice([{}, None, {"rope_theta": 700.0}, {"rope_type": None}])
    return f"rope {how} " + json.dumps({name: config[name] for name in config if "rope" in name or "original" in name})


def add_unknown(config, fields, names, random):
    name, value = random.choice([
        ("odd_field", 3), ("sliding_window", random.choice([8, 32, 64, None])), ("layer_types", ["full_attention"] * 2),
        ("layer_types", ["sliding_attention", "full_attention"]), ("torch_dtype", "float32"), ("head_dim", 8),
        ("partial_rotary_factor", random.choice([0.5, 1.0])), ("attention_bias", True), ("mlp_bias", True),
        ("use_sliding_window", True), ("max_window_layers", random.choice([0, 1, 2])), ("num_labels", 3),
        ("position_embedding_type", random.choice(["absolute", "relative_key"])), ("pruned_heads", {"0": [1]}),
        ("num_experts", 4), ("logit_scale", 2.0), ("temperature", 0.7), ("is_decoder", True), ("id2label", {"0": "a"})])
    config[name] = value
    return f"with {name} = {value}"


MUTATIONS = (remove, set_default, set_another, set_another, set_null, rename, move_rope, move_rope, move_rope, add_unknown)


def auto_class(config):
    if config["model_type"] in MASKED:
        return transformers.AutoModelForMaskedLM
    return transformers.AutoModelForPreTraining if config["model_type"] == "bert" else transformers.AutoModelForCausalLM


def is_small(config):
    """No field is at the size of a published model."""
    return all(not isinstance(value, int) or value <= 512 or name in ("num_labels", "max_position_embeddings", "max_window_layers", "sliding_window")
               for name, value in config.items())


def settings_of(config):
    """What transformers makes of a config, also of one that it opens only as another family's."""
    kind = OPENED_AS.get(config["model_type"])
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps({**config, "model_type": kind} if kind else config))
        return transformers.AutoConfig.from_pretrained(folder)


def is_computed(name):
    """Whether a buffer follows from the config: frequencies of rope, and the factor of a Gemma's embedding."""
    return "inv_freq" in name or name.endswith("embed_scale")


def make(config, folder, seed, fused=False):
    """Writes the random model of a config; the file says exactly what `config` does."""
    folder.mkdir()
    settings = settings_of(config)
    model = auto_class(config).from_config(settings).float()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in sorted([*model.named_parameters(), *model.named_buffers()]):
            if tensor.is_floating_point() and not is_computed(name):
                is_gain = "norm" in name.lower() and name.endswith("weight") and tensor.dim() == 1
                offset = tensor.mean() if is_gain else 0.0  # 1, or 0 where the model adds 1
                tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.12 + offset)
    model.save_pretrained(folder, **({"save_original_format": False} if fused else {}))
    (folder / "config.json").write_text(json.dumps(config))


def opened(folder, config):
    """The model; nothing where transformers leaves weights at random, and an error where it refuses the folder."""
    try:
        changes = {"experts_implementation": "eager"} if any("expert" in name for name in config) else {}
        written = json.loads((folder / "config.json").read_text())
        if written["model_type"] in OPENED_AS:
            changes["config"] = settings_of(written)
        model, info = auto_class(config).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                         output_loading_info=True, **changes)
    except Exception as error:  # whatever it raises, it does not read the folder
        return error
    return None if info["missing_keys"] or info["mismatched_keys"] or info.get("error_msgs") else model.eval()


def outputs(model, tokens, config):
    """The loss of a GPT and all its logits; those of an encoder."""
    with torch.no_grad():
        if config["model_type"] == "bert":
            types = (torch.arange(POSITIONS) >= POSITIONS // 2).long()[None].expand(SAMPLES, -1)
            found = model(tokens[:-1].view(SAMPLES, POSITIONS), token_type_ids=types)
            return None, torch.cat([found.prediction_logits.flatten(), found.seq_relationship_logits.flatten()])
        logits = model(tokens[:-1].view(SAMPLES, POSITIONS)).logits.double()
        if config["model_type"] in MASKED:
            return None, logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[1:])
        return loss.item(), logits


def write_tokens(prefix, tokens):
    """A data set of Megatron-LM with one document."""
    (prefix.with_suffix(".bin")).write_bytes(struct.pack(f"<{len(tokens)}H", *tokens.tolist()))
    (prefix.with_suffix(".idx")).write_bytes(b"MMIDIDX\x00\x00" + struct.pack("<QBQQiqqq", 1, 8, 1, 2, len(tokens), 0, 0, 1))


def run(*line):
    return subprocess.run([*map(str, line)], capture_output=True, text=True, check=False)


def check_bits(first, second):
    """Names of weights that differ between two models."""
    theirs = second.state_dict()
    return [name for name, tensor in first.state_dict().items() if name not in theirs or not torch.equal(tensor, theirs[name])]


def judge(program, folder, work, tokens, config):
    """('refused', ...), ('right', ...), or ('WRONG', what)."""
    status = run(program, "convert", "--load", folder, "--save", work / "in", "--seq-length", POSITIONS)
    if status.returncode == 2:
        return "refused", status.stderr.strip()
    if status.returncode != 0:
        return "WRONG", f"status {status.returncode}: {status.stderr}"
    model = opened(folder, config)
    if model is None:
        return "WRONG", "taken, although weights are missing"
    try:
        if isinstance(model, Exception):
            raise model
        loss, logits = outputs(model, tokens, config)
    except Exception as error:  # there is nothing to compare with
        return "taken although transformers refuses it", f"{error}"
    if loss is not None:
        log = work / "log.json"
        done = run(program, "evaluate", "--load", work / "in", "--data-path", work.parent / "data", "--split", "1,0,0",
                   "--part", "train", "--log-json", log)
        if done.returncode != 0:
            return "WRONG", f"cannot be evaluated: {done.stderr}"
        ours = json.loads(log.read_text().splitlines()[-1])["train_loss"]
        if not abs(ours - loss) <= 1e-5 * loss:
            return "WRONG", f"loss {ours}, transformers {loss}"
    done = run(program, "convert", "--load", work / "in", "--save", work / "out")
    if done.returncode != 0:
        return "WRONG", f"cannot be written: {done.stderr}"
    again = opened(work / "out", config)
    if not isinstance(again, torch.nn.Module):
        return "WRONG", "transformers does not read what was written"
    if different := check_bits(model, again):
        return "WRONG", f"other weights after writing: {different[:3]}"
    difference = (outputs(again, tokens, config)[1] - logits).abs().max().item()
    if not difference <= 1e-4 * max(1.0, logits.abs().max().item()):
        return "WRONG", f"logits differ by {difference} after writing"
    return "right", ""


def mutated(base, golden, rng):
    family = golden["families"][base["model_type"]]
    config = copy.deepcopy(base)
    notes = [rng.choice(MUTATIONS)(config, family["fields"], family["other_names"], rng)
             for _ in range(rng.choice([1, 1, 1, 2]))]
    return config, "; ".join(notes)


def check_family(name, options, folder, golden):
    rng = random.Random(f"{options.seed} {name}")
    tokens = torch.randint(0, VOCABULARY, (SAMPLES * POSITIONS + 1,), generator=torch.Generator().manual_seed(options.seed))
    write_tokens(folder / "data", tokens)
    make(MODELS[name], folder / "base", options.seed)
    counts, refusals = collections.Counter(), collections.Counter()
    for number in range(options.count):
        config, note = mutated(MODELS[name], golden, rng)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            work, model = pathlib.Path(scratch), pathlib.Path(scratch) / "model"
            try:
                if not is_small(config) or rng.random() < 0.2:
                    raise ValueError("the weights of the unchanged model")
                make(config, model, number, fused=rng.random() < 0.3)
            except Exception:  # transformers makes no such model
                run("rm", "-rf", model)
                run("cp", "-r", folder / "base", model)
                (model / "config.json").write_text(json.dumps(config))
            verdict, what = judge(options.program, model, work, tokens, config)
            readable = verdict == "refused" and isinstance(opened(model, config), torch.nn.Module)
        counts[verdict + (" although transformers reads it" if readable else "")] += 1
        if verdict == "WRONG" or options.verbose:
            print(f"{name} {number}: {verdict}: {note}\n    {what}", flush=True)
        elif readable:
            refusals[what.splitlines()[-1].strip()[:150]] += 1
    print(f"{name}: " + ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())), flush=True)
    for what, count in refusals.most_common(options.show):
        print(f"    {count} x refused: {what}", flush=True)
    return counts["WRONG"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--families", default=",".join(MODELS))
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=8, help="kinds of refusals to list")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    wrong = 0
    for name in options.families.split(","):
        with tempfile.TemporaryDirectory() as folder:
            wrong += check_family(name, options, pathlib.Path(folder), json.loads(GOLDEN.read_text()))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
