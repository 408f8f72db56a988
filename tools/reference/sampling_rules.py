"""Writes tests/golden/sampling_rules.json: the probabilities that transformers gives tokens by its rules of sampling.

The rules and their order are those that generate() takes from a GenerationConfig: repetition penalty, temperature, top-k,
top-p, min-p. Needs torch and transformers.

    python3 tools/reference/sampling_rules.py
"""

import json
import pathlib
import random

import torch
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel
from transformers.generation import LogitsProcessorList

VOCABULARY = 24
CASES = 60


def rules(draw):
    return {"temperature": draw.choice([1.0, 0.3, 0.7, 1.6]), "top_k": draw.choice([0, 0, 1, 5, 12, 100]), "top_p": draw.choice([1.0, 0.5, 0.8, 0.95]),
            "min_p": draw.choice([0.0, 0.0, 0.05, 0.2, 0.6]), "repetition_penalty": draw.choice([1.0, 1.2, 2.0, 0.7])}


def probabilities(model, logits, tokens, rule):
    chosen = {**rule, "top_k": rule["top_k"] or None, "min_p": rule["min_p"] or None}
    config = GenerationConfig(do_sample=True, **chosen)
    processors = model._get_logits_processor(generation_config=config, input_ids_seq_length=len(tokens), encoder_input_ids=None,
                                             prefix_allowed_tokens_fn=None, logits_processor=LogitsProcessorList())
    ids = torch.tensor([tokens])
    scores = processors(ids, torch.tensor([logits], dtype=torch.float64))
    return torch.softmax(scores, -1)[0].tolist(), [type(processor).__name__ for processor in processors]


def main():
    draw = random.Random(5)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_layer=1, n_embd=8, n_head=1, n_positions=8, bos_token_id=0, eos_token_id=0))
    cases = []
    for _ in range(CASES):
        rule = rules(draw)
        logits = [round(draw.gauss(0, 2), 4) for _ in range(VOCABULARY)]
        tokens = [draw.randrange(VOCABULARY) for _ in range(draw.randrange(1, 10))]
        found, order = probabilities(model, logits, tokens, rule)
        cases.append({"rule": rule, "logits": logits, "tokens": tokens, "probabilities": found, "order": order})
    path = pathlib.Path(__file__).parents[2] / "tests" / "golden" / "sampling_rules.json"
    path.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
