#!/usr/bin/env python3
"""Low-rank adapters of a small Llama, GPT-2 and DeepSeek-V3, trained with the peft library: golden values for
tests/parity/adapters_test.cpp.

    lora_peft.py make [CASE ...]
                           writes tests/golden/peft_<case>: the adapters as they begin, in peft's own files, and run.json:
                           tokens, ten losses, the norms and every gradient of the first step, the adapters after ten
                           updates, and logits of the model into which these are merged (merge_and_unload)
    lora_peft.py check FOLDER BASE RUN
                           whether peft opens the adapters in FOLDER on the model BASE, and gives the logits of the
                           run.json RUN

Needs torch, transformers and peft. The base models are tests/golden/hf_llama, hf_gpt2 and hf_deepseek_v3.
"""

import json
import os
import pathlib
import sys

import torch
import peft
import transformers

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import golden_json  # noqa: E402

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"
LLAMA = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
DEEPSEEK = ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"]
CASES = {
    "llama_lora": ("hf_llama", dict(r=3, lora_alpha=6, target_modules=LLAMA)),
    "llama_rs": ("hf_llama", dict(r=4, lora_alpha=3, target_modules=["q_proj", "v_proj"], use_rslora=True)),
    "llama_dora": ("hf_llama", dict(r=3, lora_alpha=6, target_modules=LLAMA, use_dora=True)),
    "gpt2_lora": ("hf_gpt2", dict(r=3, lora_alpha=6, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True)),
    "gpt2_rs": ("hf_gpt2", dict(r=4, lora_alpha=3, target_modules=["c_attn"], use_rslora=True, fan_in_fan_out=True)),
    "gpt2_dora": ("hf_gpt2", dict(r=3, lora_alpha=6, target_modules=["c_attn", "c_proj", "c_fc"], use_dora=True,
                                  fan_in_fan_out=True)),
    "deepseek_v3_lora": ("hf_deepseek_v3", dict(r=3, lora_alpha=6, init_lora_weights="gaussian",
                                                target_modules=DEEPSEEK)),
}
STEPS, BATCH, LENGTH, RATE, CLIP = 10, 4, 12, 1e-2, 1.0


def base_of(name):
    model = transformers.AutoModelForCausalLM.from_pretrained(GOLDEN / name, dtype=torch.float32)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model


def loss_of(model, tokens):
    logits = model(input_ids=tokens[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).double(), tokens[:, 1:].flatten())


def numbers(tensor):
    return [float(x) for x in tensor.detach().flatten()]


def make(name):
    base, options = CASES[name]
    torch.manual_seed(list(CASES).index(name) + 1)
    config = peft.LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, bias="none", **options)
    model = peft.get_peft_model(base_of(base), config)
    # Adapters that do something from the beginning, so that every gradient differs from 0.
    with torch.no_grad():
        for key, value in model.named_parameters():
            if ".lora_B." in key:
                value.copy_(torch.randn_like(value) * 0.05)
            if "magnitude" in key:
                value.mul_(1 + 0.05 * torch.randn_like(value))
    folder = GOLDEN / f"peft_{name}"
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    saved = json.loads((folder / "adapter_config.json").read_text())
    saved["base_model_name_or_path"] = f"../{base}"
    (folder / "adapter_config.json").write_text(json.dumps(saved, indent=2, sort_keys=True) + "\n")

    vocab = model.config.vocab_size
    tokens = torch.randint(0, vocab, (STEPS, BATCH, LENGTH + 1))
    trained = {key: value for key, value in model.named_parameters() if value.requires_grad}
    optimizer = torch.optim.AdamW(trained.values(), lr=RATE, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
    losses, norms, gradients = [], [], {}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, tokens[step])
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            gradients = {key: numbers(value.grad) for key, value in trained.items()}
        norm = torch.sqrt(sum((value.grad.double() ** 2).sum() for value in trained.values())).item()
        norms.append(norm)
        scale = CLIP / (norm + 1e-6) if norm > CLIP else 1.0
        for value in trained.values():
            value.grad.mul_(scale)
        optimizer.step()
    after = {key: numbers(value) for key, value in trained.items()}
    merged = model.merge_and_unload()
    with torch.no_grad():
        logits = numbers(merged(input_ids=tokens[0, :, :-1]).logits)
        loss_after = sum(loss_of(merged, tokens[step]).item() for step in range(STEPS)) / STEPS
    run = dict(base=base, steps=STEPS, batch=BATCH, length=LENGTH, lr=RATE, clip=CLIP, beta2=0.95,
               tokens=[[[int(t) for t in row] for row in batch] for batch in tokens], losses=losses, norms=norms,
               gradients={short(key): value for key, value in gradients.items()},
               after={short(key): value for key, value in after.items()}, logits=logits,
               loss_after=loss_after)
    golden_json.write(folder / "run.json", run)
    print(folder, losses[0], losses[-1])


def short(key):
    """The name of a tensor in peft's files."""
    key = key.replace(".default", "")
    return key[: -len(".weight")] if "magnitude" in key else key


def check(folder, base, run):
    golden = json.loads(pathlib.Path(run).read_text())
    model = peft.PeftModel.from_pretrained(
        transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), folder)
    model.eval()
    tokens = torch.tensor(golden["tokens"][0])
    with torch.no_grad():
        logits = numbers(model(input_ids=tokens[:, :-1]).logits)
    error = max(abs(a - b) for a, b in zip(logits, golden["logits"]))
    size = max(abs(x) for x in golden["logits"])
    print(f"largest difference of a logit: {error:.3g} of {size:.3g}")
    return 0 if error < 1e-4 * size else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["make"]:
        for case in sys.argv[2:] or CASES:
            make(case)
    elif len(sys.argv) == 5 and sys.argv[1] == "check":
        sys.exit(check(*sys.argv[2:]))
    else:
        sys.exit(__doc__)
