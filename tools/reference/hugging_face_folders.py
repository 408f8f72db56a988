"""Small folders as transformers or other programs write them, with the losses that transformers computes.

  pip install torch transformers
  hugging_face_folders.py    writes tests/golden/hf_folders, which tests/cli/folders_test.py reads

Each folder of hf_folders holds a small random model; losses.json says its loss over data.bin, and what a message has to
say where a model is to be refused.
"""

import json
import shutil
import sys

import safetensors.torch
import torch
from hugging_face_models import BERT, DEEPSEEK, GPT2, LLAMA, MIXTRAL, POSITIONS, QWEN2, QWEN3
from hugging_face_mutations import GOLDEN, make, opened, outputs, write_tokens

FOLDERS = GOLDEN.parent / "hf_folders"
VOCABULARY = 40
SMALL = {"vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 12, "head_dim": 4, "moe_intermediate_size": 6,
         "shared_expert_intermediate_size": 10, "kv_lora_rank": 8, "q_lora_rank": 6, "n_embd": 16, "qk_nope_head_dim": 4,
         "v_head_dim": 4}
# Where other values than usual are far from them, so that each is seen in the loss.
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 8}
LATENT_YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}
CASES = {
    "llama_biases_of_attention": (LLAMA, {"attention_bias": True}),
    "llama_biases_of_mlp": (LLAMA, {"mlp_bias": True}),
    "llama_scaling_replaces_parameters": (LLAMA, {"rope_scaling": {"type": "linear", "factor": 4.0}}),
    "llama_llama3": (LLAMA, {"rope_parameters": {"rope_type": "llama3", "rope_theta": 100.0, "factor": 4.0, "low_freq_factor": 1.0,
                                                 "high_freq_factor": 3.0, "original_max_position_embeddings": 8}}),
    "llama_yarn_without_factor": (LLAMA, {"rope_parameters": {**YARN, "factor": None}}),
    "llama_yarn_without_rounding": (LLAMA, {"rope_parameters": {**YARN, "truncate": False, "rope_theta": 50.0}}),
    "llama_yarn_small_growth": (LLAMA, {"rope_parameters": {**YARN, "attention_factor": 0.8}}),
    "llama_positions_beside_rope": (LLAMA, {"rope_parameters": YARN, "original_max_position_embeddings": 16}),
    "llama_unused_window": (LLAMA, {"sliding_window": 8}),
    "gpt2_other_names": (GPT2, {"hidden_size": 16, "num_hidden_layers": 2, "n_layer": 7}),
    "mixtral_rope_without_base": (MIXTRAL, {"rope_parameters": {"rope_type": "default"}}),
    "mixtral_old_and_new_name": (MIXTRAL, {"num_experts": 4, "num_local_experts": 9}),
    "mixtral_wide_window": (MIXTRAL, {"sliding_window": POSITIONS}),
    "mixtral_fused": (MIXTRAL, {}),
    "qwen2_moe_fused": (QWEN2, {}),
    "qwen2_moe_windows_nowhere": (QWEN2, {"use_sliding_window": True, "sliding_window": 8}),
    "qwen2_moe_sliding_layer": (QWEN2, {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8}),
    "qwen3_moe_new_name": (QWEN3, {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}),
    "qwen3_moe_biases_of_attention": (QWEN3, {"attention_bias": True}),
    "qwen3_moe_fused": (QWEN3, {}),
    "deepseek_other_epsilon": (DEEPSEEK, {"rms_norm_eps": 1e-2}),
    "deepseek_fields_left_out": (DEEPSEEK, {"n_group": None, "topk_group": None, "num_experts_per_tok": None,
                                            "routed_scaling_factor": None, "first_k_dense_replace": None,
                                            "n_routed_experts": 16, "num_hidden_layers": 4}),
    "deepseek_growth_of_all": (DEEPSEEK, {"rope_scaling": {**LATENT_YARN, "mscale_all_dim": 1.0}}),
    "deepseek_growth_beside_all": (DEEPSEEK, {"rope_scaling": {**LATENT_YARN, "mscale_all_dim": 0.5, "attention_factor": 1.3}}),
    "deepseek_whole_queries": (DEEPSEEK, {"q_lora_rank": "null"}),
    "deepseek_fused": (DEEPSEEK, {}),
    # Changed after they were made.
    "llama_tied_apart": (LLAMA, {"tie_word_embeddings": True}),
    "gpt2_tied_apart": (GPT2, {}),
    "mixtral_tied_apart": (MIXTRAL, {"tie_word_embeddings": True}),
    "llama_tied_under_other_name": (LLAMA, {"tie_word_embeddings": True}),
    "gpt2_tied_under_other_name": (GPT2, {}),
    "llama_tied_twice": (LLAMA, {"tie_word_embeddings": True}),
    "bert_decoder_apart": (BERT, {}),
    "llama_old_index": (LLAMA, {}),
}
REFUSED = {"qwen2_moe_sliding_layer": "'layer_types' gives 1 layers a window, but 'use_sliding_window' is false",
           "bert_decoder_apart": "tensor cls.predictions.decoder.weight has other values than "
                                 "bert.embeddings.word_embeddings.weight"}


def config_of(base, changes):
    """None leaves a field out."""
    config = {**base, **{name: value for name, value in SMALL.items() if name in base}, **changes}
    config = {name: value for name, value in config.items() if name not in changes or changes[name] is not None}
    return {name: None if value == "null" else value for name, value in config.items()}


def change_tensors(folder, name):
    file = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    embedding = next((key for key in tensors if key.endswith(("embed_tokens.weight", "wte.weight", "word_embeddings.weight"))))
    head = "cls.predictions.decoder.weight" if name.startswith("bert") else "lm_head.weight"
    if name.endswith("_apart"):
        tensors[head] = torch.randn(tensors[embedding].shape, generator=torch.Generator().manual_seed(9)) * 0.3
    if name.endswith("_twice"):
        tensors[head] = tensors[embedding].clone()
    if name.endswith("_under_other_name"):
        tensors[head] = tensors.pop(embedding)
    safetensors.torch.save_file(tensors, file, metadata={"format": "pt"})
    if name.endswith("_old_index"):
        places = {key: "model-00001-of-00002.safetensors" for key in tensors}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


def main():
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    import transformers

    shutil.rmtree(FOLDERS, ignore_errors=True)
    FOLDERS.mkdir()
    tokens = torch.randint(0, VOCABULARY, (4 * POSITIONS + 1,), generator=torch.Generator().manual_seed(3))
    write_tokens(FOLDERS / "data", tokens)
    losses = {}
    for number, (name, (base, changes)) in enumerate(CASES.items()):
        config = config_of(base, changes)
        folder = FOLDERS / name
        made = {**config, "num_hidden_layers": 2, "n_layer": 2} if name == "gpt2_other_names" else config
        make(made, folder, 100 + number, fused=name.endswith("_fused"))
        (folder / "generation_config.json").unlink(missing_ok=True)
        (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        change_tensors(folder, name)
        model = opened(folder, config)
        losses[name] = REFUSED.get(name) or round(outputs(model, tokens, config)[0], 9)
    text = json.dumps({"transformers": transformers.__version__, "folders": losses}, indent=1)
    (FOLDERS / "losses.json").write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
