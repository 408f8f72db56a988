"""Three steps of SGD of small models of transformers, by trifold.train and by PyTorch: which families train, and how alike.

  pip install torch transformers build/wheel/trifold-*.whl
  own_models_families.py [NAME...]   all families or those named

Weights are random and in f64, dropout is off, and a step takes all samples, so that only rounding differs: losses that
transformers computes in f32 make some weights differ by up to 1e-6 of the largest of their tensor. Exit status 1 if any
family fails or differs by more.
"""

import contextlib
import copy
import io
import os
import sys

import torch

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import transformers  # pylint: disable=wrong-import-position
import trifold  # pylint: disable=wrong-import-position

SAMPLES, LENGTH, VOCABULARY, STEPS, RATE, LIMIT = 32, 8, 64, 3, 0.1, 1e-6
COMMON = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
          "intermediate_size": 32, "max_position_embeddings": 32, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
DECODER = {"num_key_value_heads": 1}
OF_BART = {"vocab_size": VOCABULARY, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
           "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 16,
           "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "forced_eos_token_id": 2}
OF_T5 = {"vocab_size": VOCABULARY, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2,
         "decoder_start_token_id": 0}

# The classes' prefix, that of the model's class, and the values of the configuration.
FAMILIES = {
    "gpt2": ("GPT2", "LMHeadModel", COMMON),
    "opt": ("OPT", "ForCausalLM", COMMON | {"ffn_dim": 32, "word_embed_proj_dim": 16}),
    "gptj": ("GPTJ", "ForCausalLM", {"vocab_size": VOCABULARY, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32, "rotary_dim": 4,
                                     "bos_token_id": 1, "eos_token_id": 2}),
    "gpt_neox": ("GPTNeoX", "ForCausalLM", COMMON),
    "llama": ("Llama", "ForCausalLM", COMMON | DECODER),
    "mistral": ("Mistral", "ForCausalLM", COMMON | DECODER | {"sliding_window": 4}),
    "phi3": ("Phi3", "ForCausalLM", COMMON | DECODER),
    "stablelm": ("StableLm", "ForCausalLM", COMMON | DECODER),
    "qwen2": ("Qwen2", "ForCausalLM", COMMON | DECODER),
    "qwen3": ("Qwen3", "ForCausalLM", COMMON | DECODER | {"head_dim": 8}),
    "gemma2": ("Gemma2", "ForCausalLM", COMMON | DECODER | {"head_dim": 8}),
    "bert": ("Bert", "ForSequenceClassification", COMMON),
    "bert_eager": ("Bert", "ForSequenceClassification", COMMON | {"attn_implementation": "eager"}),
    "bert_masked": ("Bert", "ForMaskedLM", COMMON),
    "roberta": ("Roberta", "ForSequenceClassification", COMMON),
    "distilbert": ("DistilBert", "ForSequenceClassification", {"vocab_size": VOCABULARY, "dim": 16, "n_layers": 2, "n_heads": 2,
                                                               "hidden_dim": 32, "max_position_embeddings": LENGTH}),
    "electra": ("Electra", "ForSequenceClassification", COMMON | {"embedding_size": 16}),
    "albert": ("Albert", "ForSequenceClassification", COMMON | {"embedding_size": 16}),
    "mpnet": ("MPNet", "ForSequenceClassification", COMMON),
    "modernbert": ("ModernBert", "ForSequenceClassification", COMMON),
    "bart": ("Bart", "ForConditionalGeneration", OF_BART),
    "pegasus": ("Pegasus", "ForConditionalGeneration", OF_BART),
    "t5": ("T5", "ForConditionalGeneration", OF_T5),
    "t5_gated": ("T5", "ForConditionalGeneration", OF_T5 | {"feed_forward_proj": "gated-gelu"}),
    "mt5": ("MT5", "ForConditionalGeneration", OF_T5),
}


def model_and_data(prefix, suffix, values):
    torch.manual_seed(7)
    model = getattr(transformers, prefix + suffix)(getattr(transformers, prefix + "Config")(**values)).double().train()
    for module in model.modules():
        for key, value in vars(module).items():
            if isinstance(value, float) and ("drop" in key or (key == "p" and isinstance(module, torch.nn.Dropout))):
                setattr(module, key, 0.0)
    ids = torch.randint(3, VOCABULARY, (SAMPLES, LENGTH))
    data = {"input_ids": ids}
    if "Sequence" in suffix or "Masked" in suffix:
        data["attention_mask"] = (torch.arange(LENGTH) < torch.randint(LENGTH // 2, LENGTH + 1, (SAMPLES, 1))).long()
    return model, data | {"labels": ids[:, 0] % 2 if "Sequence" in suffix else ids}


def difference(model, data):
    """The largest difference of a weight, as a fraction of the largest weight of its tensor."""
    reference = copy.deepcopy(model)
    with contextlib.redirect_stderr(io.StringIO()):
        trifold.train(model, data, micro_batch_size=SAMPLES, global_batch_size=SAMPLES, train_iters=STEPS, lr=RATE, split="1,0,0",
                      lr_decay_style="constant", optimizer="sgd", sgd_momentum=0, weight_decay=0, clip_grad=0, f64=True)
    rule = torch.optim.SGD(reference.parameters(), lr=RATE)
    for _ in range(STEPS):
        rule.zero_grad()
        reference(**data).loss.backward()
        rule.step()
    return max(((weight - model.get_parameter(name)).abs().max() / weight.abs().max().clamp_min(1e-6)).item()
               for name, weight in reference.named_parameters())


def main(names):
    if not set(names) <= set(FAMILIES):
        sys.exit(__doc__)
    failed = False
    for name in names or FAMILIES:
        try:
            result = difference(*model_and_data(*FAMILIES[name]))
            failed |= not result <= LIMIT
            print(f"{name:12s} {result:.0e}", flush=True)
        except RuntimeError as error:
            failed = True
            print(f"{name:12s} {error}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
