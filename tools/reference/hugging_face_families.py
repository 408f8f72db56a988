"""Compares Trifold with transformers on a small random model of every family with odd sizes, there and back.

  pip install torch transformers
  hugging_face_families.py check build/release/launch/trifold [FAMILY ...]    compares an installed transformers
  hugging_face_families.py make [FAMILY ...]     writes tests/golden/hf_FAMILY, with which tests/parity/convert_test.cpp
                                                 and tests/parity/families_test.cpp compare

`check` makes a model by transformers, imports it, compares the loss of a text and the losses of ten steps of gradient
descent over tensor, pipeline, context and expert ranks, exports it, and compares every bit of its weights and its logits.
Encoders mask tokens at random, so `check` compares their weights and logits alone; losses and steps are in the golden files.
"""

import argparse
import json
import pathlib
import shlex
import sys
import tempfile

import torch
from hugging_face_models import CLASSES, MASKED, MODELS, POSITIONS, PUBLISHED
from hugging_face_mutations import check_bits, is_computed, make, opened, outputs, run, write_tokens
from hugging_face_torch import GOLDEN, ids_of, write_file

VOCABULARY, LENGTH, STEPS, RATE = 41, 12, 10, 0.05
MESHES = {"1 rank": [], "tp 2": ["--ranks", 2, "--tp", 2, "--sequence-parallel"], "pp 2": ["--ranks", 2, "--pp", 2],
          "cp 2": ["--ranks", 2, "--cp", 2], "ep 2": ["--ranks", 2, "--ep", 2]}


def config_of(family):
    changes = {name: 0.0 for name in MODELS[family] if name.endswith(("pdrop", "dropout"))}
    return {**MODELS[family], **changes, "vocab_size": VOCABULARY}


def meshes_of(config):
    return {name: options for name, options in MESHES.items() if name != "ep 2" or any("expert" in field for field in config)}


def mean_loss(model, tokens):
    """Of the next tokens, which an encoder sees. A Mixtral's own loss would also have that of its routers."""
    return torch.nn.functional.cross_entropy(model(tokens[None, :-1]).logits[0].double(), tokens[1:])


def trained(model, tokens):
    """The losses of steps of gradient descent."""
    losses = []
    for _ in range(STEPS):
        model.zero_grad()
        loss = mean_loss(model, tokens)
        loss.backward()
        losses.append(loss.item())
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter -= RATE * parameter.grad
    return losses


def write_golden(family):
    """Weights in bf16, which published files have, and what transformers computes from them in f64."""
    folder, config = GOLDEN / f"hf_{family}", config_of(family)
    run("rm", "-rf", folder)
    make(config, folder, 11)
    model = opened(folder, config)
    bias = "e_score_correction_bias"
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if tensor.is_floating_point() and bias not in name and not is_computed(name):
                tensor.copy_(tensor.bfloat16())
    model.double()
    ids = torch.tensor([(7 * i * i + 3 * i + 1) % VOCABULARY for i in range(LENGTH + 1)])
    logits = model(ids[None], **pair_of(config, len(ids))).logits[0]
    mean_loss(model, ids).backward()
    gradients = {}
    for name, tensor in saved_names(model, {name: p.grad for name, p in model.named_parameters(remove_duplicate=False)}).items():
        gradients[name] = tensor.float()
    losses = trained(model, ids)
    model = opened(folder, config)
    weights = {name: tensor if bias in name else tensor.bfloat16() for name, tensor in saved_names(model, dict(model.state_dict())).items()}
    write_file(folder / "model.safetensors", weights)
    write_file(folder / "gradients.safetensors", gradients)
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    rows = ",\n ".join(json.dumps([round(x, 7) for x in row]) for row in logits.tolist())
    (folder / "logits.json").write_text(f'{{"ids": {json.dumps(ids.tolist())},\n"losses": {json.dumps(losses)},\n'
                                        f'"rate": {RATE},\n"logits": [{rows}]}}\n')
    print(f"{folder}: loss {losses[0]:.6f}, after {STEPS} steps {losses[-1]:.6f}")


def pair_of(config, length):
    """Arguments for a pair of sentences, the halves, with two tokens of padding; nothing for a GPT."""
    if config["model_type"] not in MASKED:
        return {}
    places = torch.arange(length)[None]
    types = {"token_type_ids": (places >= length // 2).long()} if config.get("type_vocab_size", 0) > 1 else {}
    return {"attention_mask": (places < length - 2).long(), **types}


def saved_names(model, tensors):
    """Tensors of a model's parameters as save_pretrained names and splits them."""
    if any(tensor is None for tensor in tensors.values()):
        tensors = {name: torch.zeros_like(model.get_parameter(name)) if tensor is None else tensor for name, tensor in tensors.items()}
    from safetensors.torch import load_file

    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, state_dict=tensors)
        return load_file(pathlib.Path(folder) / "model.safetensors")


def check_family(program, family, work):
    """Lines that say what differs."""
    config, wrong = config_of(family), []
    make(config, work / "model", 5)
    model = opened(work / "model", config)
    tokens = torch.randint(0, VOCABULARY, (POSITIONS + 1,), generator=torch.Generator().manual_seed(3))
    tokens[-1] = tokens[0]  # the document follows itself: all samples are the same
    write_tokens(work / "data", tokens[:-1].repeat(2))
    done = run(program, "convert", "--load", work / "model", "--save", work / "in")
    if done.returncode != 0:
        return [f"cannot be imported: {done.stderr}"]
    described = shlex.split(done.stdout.splitlines()[-1].partition("--finetune")[2])
    if "--moe-router-enable-expert-bias" in described:
        described += ["--moe-router-bias-update-rate", 0]  # transformers leaves it as it is
    logits = model(tokens[None, :-1]).logits
    done = run(program, "convert", "--load", work / "in", "--save", work / "out")
    if done.returncode != 0:
        return [f"cannot be exported: {done.stderr}"]
    if json.loads((work / "out" / "config.json").read_text())["model_type"] != config["model_type"]:
        wrong.append("became another family")
    again = opened(work / "out", config)
    if not isinstance(again, torch.nn.Module):
        return [*wrong, f"transformers does not open what was written: {again}"]
    if different := check_bits(model, again):
        wrong.append(f"other weights after writing: {different[:3]}")
    if not torch.equal(again(tokens[None, :-1]).logits, logits):
        wrong.append("other logits after writing")
    if config["model_type"] in MASKED:  # its training data are masked at random
        return wrong
    expected = trained(model.double(), tokens)
    for mesh, options in meshes_of(config).items():
        log = work / "log.jsonl"
        log.unlink(missing_ok=True)
        done = run(program, "pretrain", "--load", work / "in", "--finetune", *described, "--data-path", work / "data",
                   "--split", "1,0,0", "--train-iters", STEPS, "--optimizer", "sgd", "--sgd-momentum", 0, "--weight-decay", 0, "--lr", RATE, "--lr-decay-style",
                   "constant", "--clip-grad", 0, "--micro-batch-size", 1, "--global-batch-size", 2, "--log-interval", 1,
                   "--log-json", log, *options)
        if done.returncode != 0:
            wrong.append(f"{mesh}: {done.stderr}")
            continue
        losses = [json.loads(line)["loss"] for line in log.read_text().splitlines() if "loss" in json.loads(line)]
        worst = max(abs(ours - theirs) / theirs for ours, theirs in zip(losses, expected, strict=True))
        if not worst < 1e-5 or abs(losses[0] - expected[0]) > 1e-6 * expected[0]:
            wrong.append(f"{mesh}: losses {losses}, transformers {expected}")
        print(f"{family}, {mesh}: losses differ by {worst:.1e} in {STEPS} steps", flush=True)
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["check", "make"])
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.what == "make":
        for family in options.words or PUBLISHED:
            write_golden(family)
        return 0
    if not options.words:
        parser.error("check needs the program")
    program, *families = options.words
    failures = 0
    for family in families or [name for name in MODELS if name != "bert"]:
        with tempfile.TemporaryDirectory() as folder:
            for line in check_family(program, family, pathlib.Path(folder)):
                failures += 1
                print(f"{family}: {line}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
