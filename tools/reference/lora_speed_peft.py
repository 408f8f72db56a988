#!/usr/bin/env python3
"""Seconds of a training step with low-rank adapters in peft, beside which `trifold pretrain --lora-rank` is measured.

    lora_speed_peft.py model FOLDER              writes a Llama with random weights (about 60 million parameters)
    lora_speed_peft.py time FOLDER [--dora]      trains adapters of rank 16 in all of its linear layers, 2 samples of 256
                                                 tokens a step, and prints the median of the steps

Needs torch, transformers and peft. OMP_NUM_THREADS says how many cores torch uses.
"""

import statistics
import sys
import time

import peft
import torch
import transformers

LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
BATCH, LENGTH, STEPS = 2, 256, 12


def write(folder):
    torch.manual_seed(1)
    config = transformers.LlamaConfig(vocab_size=256, hidden_size=768, intermediate_size=2048, num_hidden_layers=8,
                                      num_attention_heads=12, num_key_value_heads=4, max_position_embeddings=LENGTH)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def measure(folder, dora):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", r=16, lora_alpha=32, lora_dropout=0.0,
                                                       target_modules=LAYERS, use_dora=dora))
    model.train()
    trained = [value for value in model.parameters() if value.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4)
    tokens = torch.randint(0, 256, (BATCH, LENGTH + 1))
    seconds = []
    for _ in range(STEPS):
        start = time.perf_counter()
        logits = model(input_ids=tokens[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    step = statistics.median(seconds[2:])
    print(f"{torch.get_num_threads()} threads: {1e3 * step:.0f} ms a step, {BATCH * LENGTH / step:.0f} tokens/s")


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "model":
        write(sys.argv[2])
    elif len(sys.argv) >= 3 and sys.argv[1] == "time":
        measure(sys.argv[2], "--dora" in sys.argv)
    else:
        sys.exit(__doc__)
