"""The families of models in transformers that Trifold converts: the configuration class of each, and a config.json of a
small model with odd sizes, from which other scripts make random models. A new family is a line of CLASSES and a config."""

POSITIONS, VOCABULARY, SAMPLES = 32, 64, 4

LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": VOCABULARY, "hidden_size": 32,
         "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "head_dim": 8, "hidden_act": "silu", "max_position_embeddings": POSITIONS, "initializer_range": 0.12,
         "rms_norm_eps": 1e-6, "use_cache": True, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None,
         "pretraining_tp": 1, "tie_word_embeddings": False, "attention_bias": False, "attention_dropout": 0.0,
         "mlp_bias": False, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
EXPERTS = {name: value for name, value in LLAMA.items() if name not in ("attention_bias", "mlp_bias", "pretraining_tp")}
MIXTRAL = {**EXPERTS, "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "intermediate_size": 24,
           "num_local_experts": 4, "num_experts_per_tok": 2, "output_router_logits": False, "sliding_window": None,
           "router_aux_loss_coef": 0.001, "router_jitter_noise": 0.0, "rms_norm_eps": 1e-5}
QWEN = {**EXPERTS, "moe_intermediate_size": 16, "num_experts_per_tok": 2, "norm_topk_prob": True,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "output_router_logits": False, "router_aux_loss_coef": 0.001,
        "use_sliding_window": False, "sliding_window": None}
QWEN3 = {**QWEN, "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "num_local_experts": 4,
         "attention_bias": False}
QWEN2 = {**QWEN, "model_type": "qwen2_moe", "architectures": ["Qwen2MoeForCausalLM"], "num_experts": 4,
         "shared_expert_intermediate_size": 24, "qkv_bias": True, "max_window_layers": 28,
         "layer_types": ["full_attention"] * 2}
del QWEN2["head_dim"]
DEEPSEEK = {**EXPERTS, "model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "attention_bias": False,
            "num_key_value_heads": 4, "head_dim": 4, "moe_intermediate_size": 16, "n_shared_experts": 1,
            "n_routed_experts": 8, "routed_scaling_factor": 2.5, "kv_lora_rank": 16, "q_lora_rank": 12,
            "qk_rope_head_dim": 4, "v_head_dim": 8, "qk_nope_head_dim": 8, "n_group": 4, "topk_group": 2,
            "num_experts_per_tok": 4, "first_k_dense_replace": 1, "norm_topk_prob": True, "rope_interleave": True}
GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": VOCABULARY, "n_positions": POSITIONS,
        "n_embd": 32, "n_layer": 2, "n_head": 4, "n_inner": None, "activation_function": "gelu_new", "resid_pdrop": 0.1,
        "embd_pdrop": 0.1, "attn_pdrop": 0.1, "layer_norm_epsilon": 1e-5, "initializer_range": 0.12,
        "scale_attn_weights": True, "use_cache": True, "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False, "tie_word_embeddings": True, "bos_token_id": None, "eos_token_id": None}
BERT = {"model_type": "bert", "architectures": ["BertForPreTraining"], "vocab_size": VOCABULARY, "hidden_size": 32,
        "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40, "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "max_position_embeddings": POSITIONS,
        "type_vocab_size": 2, "initializer_range": 0.12, "layer_norm_eps": 1e-12, "pad_token_id": 0, "use_cache": True,
        "classifier_dropout": None, "is_decoder": False, "add_cross_attention": False, "tie_word_embeddings": True}

# As published files have them, with rope's base beside the other fields. All sizes differ, and tensor ranks can halve them.
DENSE = {"vocab_size": VOCABULARY, "hidden_size": 12, "intermediate_size": 14, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 6, "hidden_act": "silu", "max_position_embeddings": POSITIONS,
         "initializer_range": 0.12, "rms_norm_eps": 1e-6, "use_cache": True, "tie_word_embeddings": False,
         "attention_dropout": 0.0, "pad_token_id": None, "rope_theta": 10000.0}
MISTRAL = {**DENSE, "model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 5}
MINISTRAL = {**DENSE, "model_type": "ministral", "architectures": ["MinistralForCausalLM"], "sliding_window": 4,
             "layer_types": ["sliding_attention", "full_attention"], "tie_word_embeddings": True}
QWEN2_DENSE = {**DENSE, "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 16,
               "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 0,
               "layer_types": ["sliding_attention", "full_attention"]}
del QWEN2_DENSE["head_dim"]
QWEN3_DENSE = {**DENSE, "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "attention_bias": False,
               "tie_word_embeddings": True, "use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}
PHI3 = {**DENSE, "model_type": "phi3", "architectures": ["Phi3ForCausalLM"], "head_dim": 8, "sliding_window": 7,
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "partial_rotary_factor": 0.75, "original_max_position_embeddings": POSITIONS}
GLM4 = {**DENSE, "model_type": "glm4_moe", "architectures": ["Glm4MoeForCausalLM"], "head_dim": 8, "attention_bias": True,
        "use_qk_norm": True, "partial_rotary_factor": 0.5, "moe_intermediate_size": 6, "n_routed_experts": 8,
        "n_shared_experts": 1, "num_experts_per_tok": 4, "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5,
        "norm_topk_prob": True, "first_k_dense_replace": 1, "num_hidden_layers": 2}
KIMI = {**DENSE, "model_type": "kimi_k2", "architectures": ["DeepseekV3ForCausalLM"], "num_key_value_heads": 4,
        "attention_bias": False, "q_lora_rank": 10, "kv_lora_rank": 8, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4,
        "v_head_dim": 6, "moe_intermediate_size": 6, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 3,
        "n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.827, "norm_topk_prob": True, "first_k_dense_replace": 1,
        "scoring_func": "sigmoid", "topk_method": "noaux_tc", "moe_layer_freq": 1, "rope_theta": 50000.0,
        "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "beta_fast": 1.0,
                         "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0}}
del KIMI["head_dim"]
NEOX = {"model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "vocab_size": VOCABULARY, "hidden_size": 16,
        "intermediate_size": 22, "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_act": "gelu",
        "max_position_embeddings": POSITIONS, "initializer_range": 0.12, "layer_norm_eps": 1e-5, "use_cache": True,
        "tie_word_embeddings": False, "attention_dropout": 0.0, "hidden_dropout": 0.0, "attention_bias": True,
        "use_parallel_residual": False, "rotary_pct": 0.5, "rotary_emb_base": 10000.0}
STARCODER2 = {"model_type": "starcoder2", "architectures": ["Starcoder2ForCausalLM"], "vocab_size": VOCABULARY,
              "hidden_size": 16, "intermediate_size": 22, "num_hidden_layers": 2, "num_attention_heads": 4,
              "num_key_value_heads": 2, "hidden_act": "gelu_new", "max_position_embeddings": POSITIONS,
              "initializer_range": 0.12, "norm_epsilon": 1e-5, "use_cache": True, "tie_word_embeddings": True,
              "attention_dropout": 0.0, "residual_dropout": 0.0, "embedding_dropout": 0.0, "use_bias": True,
              "sliding_window": 6, "rope_theta": 10000.0}
TWO_KINDS = {"layer_types": ["sliding_attention", "full_attention"], "attention_bias": False}
GEMMA2 = {**{name: value for name, value in DENSE.items() if name != "hidden_act"}, **TWO_KINDS, "model_type": "gemma2",
          "architectures": ["Gemma2ForCausalLM"], "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 5,
          "sliding_window": 5, "attn_logit_softcapping": 1.5, "final_logit_softcapping": 2.5, "tie_word_embeddings": True}
GEMMA3 = {**GEMMA2, "model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "sliding_window": 4,
          "final_logit_softcapping": None,
          "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
                              "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}
for name in ("attn_logit_softcapping", "rope_theta"):
    del GEMMA3[name]
OLMO2 = {**DENSE, "model_type": "olmo2", "architectures": ["Olmo2ForCausalLM"], "hidden_size": 24, "attention_bias": False}
del OLMO2["head_dim"]
OLMO3 = {**OLMO2, **TWO_KINDS, "model_type": "olmo3", "architectures": ["Olmo3ForCausalLM"], "sliding_window": 5,
         "rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8,
                                                "beta_fast": 32.0, "beta_slow": 1.0, "attention_factor": 1.25,
                                                "rope_theta": 500000.0},
                             "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0}}}
del OLMO3["rope_theta"]
GRANITE = {**OLMO2, "model_type": "granite", "architectures": ["GraniteForCausalLM"], "mlp_bias": True, "attention_bias": True,
           "attention_multiplier": 0.375, "embedding_multiplier": 3.0, "residual_multiplier": 0.22, "logits_scaling": 1.5}
SMOLLM3 = {**OLMO2, "model_type": "smollm3", "architectures": ["SmolLM3ForCausalLM"], "mlp_bias": False, "num_hidden_layers": 4,
           "no_rope_layers": [1, 0, 1, 0], "use_sliding_window": True, "sliding_window": 5, "tie_word_embeddings": True,
           "layer_types": ["full_attention", "sliding_attention", "full_attention", "full_attention"]}
GPT_OSS = {**DENSE, "model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "num_local_experts": 4,
           "num_experts_per_tok": 2, "experts_per_token": 2, "attention_bias": True, "swiglu_limit": 1.25, "sliding_window": 5,
           "layer_types": ["sliding_attention", "full_attention"], "output_router_logits": False,
           "rope_theta": 150000.0, "initial_context_length": 8,
           "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "beta_fast": 32.0,
                            "beta_slow": 1.0, "truncate": False}}
OPT = {"model_type": "opt", "architectures": ["OPTForCausalLM"], "vocab_size": VOCABULARY, "hidden_size": 12,
       "word_embed_proj_dim": 12, "ffn_dim": 22, "num_hidden_layers": 2, "num_attention_heads": 2, "activation_function": "relu",
       "max_position_embeddings": POSITIONS, "do_layer_norm_before": True, "dropout": 0.0, "attention_dropout": 0.0,
       "init_std": 0.12, "use_cache": True, "enable_bias": True, "tie_word_embeddings": True, "pad_token_id": None}
# Padding is a token that no test has: transformers gives such a token no position, and no gradient.
ROBERTA = {"model_type": "roberta", "architectures": ["RobertaForMaskedLM"], "vocab_size": VOCABULARY, "hidden_size": 12,
           "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 22, "hidden_act": "gelu",
           "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "max_position_embeddings": POSITIONS + 4,
           "type_vocab_size": 1, "initializer_range": 0.12, "layer_norm_eps": 1e-5, "pad_token_id": 3, "use_cache": True,
           "tie_word_embeddings": True}
XLM_ROBERTA = {**ROBERTA, "model_type": "xlm-roberta", "architectures": ["XLMRobertaForMaskedLM"], "type_vocab_size": 2,
               "max_position_embeddings": POSITIONS + 1, "pad_token_id": 0, "intermediate_size": 18}
DISTILBERT = {"model_type": "distilbert", "architectures": ["DistilBertForMaskedLM"], "vocab_size": VOCABULARY, "dim": 12,
              "n_layers": 2, "n_heads": 2, "hidden_dim": 22, "max_position_embeddings": POSITIONS, "activation": "gelu",
              "dropout": 0.0, "attention_dropout": 0.0, "initializer_range": 0.12, "sinusoidal_pos_embds": False,
              "pad_token_id": None, "tie_word_embeddings": True}
MODERNBERT = {"model_type": "modernbert", "architectures": ["ModernBertForMaskedLM"], "vocab_size": VOCABULARY, "hidden_size": 12,
              "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 14, "hidden_activation": "gelu",
              "classifier_activation": "gelu", "max_position_embeddings": POSITIONS, "initializer_range": 0.12, "norm_eps": 1e-5,
              "norm_bias": False, "attention_bias": False, "mlp_bias": False, "classifier_bias": False, "decoder_bias": True,
              "attention_dropout": 0.0, "embedding_dropout": 0.0, "mlp_dropout": 0.0, "global_attn_every_n_layers": 3,
              "local_attention": 6, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0, "pad_token_id": None,
              "tie_word_embeddings": True}
ELECTRA = {**ROBERTA, "model_type": "electra", "architectures": ["ElectraForMaskedLM"], "hidden_size": 16, "embedding_size": 10,
           "max_position_embeddings": POSITIONS, "type_vocab_size": 2, "pad_token_id": None}
HUNYUAN = {**QWEN3_DENSE, "model_type": "hunyuan_v1_dense", "architectures": ["HunYuanDenseV1ForCausalLM"]}
for name in ("use_sliding_window", "sliding_window", "max_window_layers"):
    del HUNYUAN[name]
PUBLISHED = {config["model_type"]: config for config in (MISTRAL, MINISTRAL, QWEN2_DENSE, QWEN3_DENSE, PHI3, GLM4, KIMI, NEOX,
                                                         STARCODER2, GEMMA2, GEMMA3, OLMO2, OLMO3, GRANITE, SMOLLM3, GPT_OSS,
                                                         OPT, ROBERTA, XLM_ROBERTA, DISTILBERT, MODERNBERT, ELECTRA, HUNYUAN)}
# Other forms of some families.
PUBLISHED["gpt_neox_parallel"] = {**NEOX, "use_parallel_residual": True}
PUBLISHED["modernbert_biases"] = {**MODERNBERT, "num_hidden_layers": 2, "norm_bias": True, "attention_bias": True,
                                  "classifier_bias": True, "layer_types": ["sliding_attention", "full_attention"],
                                  "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 500.0},
                                                      "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}}
for name in ("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta"):
    del PUBLISHED["modernbert_biases"][name]
# As Phi-4-mini rotates a part of each head, and Phi-3-mini all of it; the first has the factors of long samples.
PHI3_LONG = {**PHI3, "hidden_size": 32}
del PHI3_LONG["head_dim"]
PUBLISHED["phi3_longrope"] = {**PHI3_LONG, "original_max_position_embeddings": 8,
                              "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.5, 2.5], "long_factor": [1.25, 3.0, 20.0]}}
PUBLISHED["phi3_longrope_short"] = {**PHI3_LONG, "partial_rotary_factor": 1.0, "rope_scaling": {
    "type": "longrope", "short_factor": [1.0, 1.1, 2.0, 4.5], "long_factor": [1.5, 3.0, 9.0, 20.0], "attention_factor": 1.25}}
PUBLISHED["mixtral_window"] = {**MIXTRAL, "sliding_window": 5, "rope_theta": 10000.0}
PUBLISHED["qwen2_moe_windows"] = {**QWEN2, "use_sliding_window": True, "sliding_window": 4, "rope_theta": 10000.0,
                                  "layer_types": ["sliding_attention", "full_attention"]}
for name in ("mixtral_window", "qwen2_moe_windows"):
    for other in ("rope_parameters", "router_aux_loss_coef", "router_jitter_noise", "max_window_layers"):
        PUBLISHED[name].pop(other, None)
MODELS = {config["model_type"]: config for config in (GPT2, LLAMA, MIXTRAL, QWEN2, QWEN3, DEEPSEEK, BERT)} | PUBLISHED
CLASSES = {"gpt2": "GPT2Config", "llama": "LlamaConfig", "mistral": "MistralConfig", "ministral": "MinistralConfig",
           "qwen2": "Qwen2Config", "qwen3": "Qwen3Config", "phi3": "Phi3Config", "gpt_neox": "GPTNeoXConfig",
           "starcoder2": "Starcoder2Config", "mixtral": "MixtralConfig", "qwen2_moe": "Qwen2MoeConfig",
           "qwen3_moe": "Qwen3MoeConfig", "gpt_oss": "GptOssConfig", "glm4_moe": "Glm4MoeConfig", "deepseek_v3": "DeepseekV3Config",
           "gemma2": "Gemma2Config", "gemma3_text": "Gemma3TextConfig", "olmo2": "Olmo2Config", "olmo3": "Olmo3Config",
           "granite": "GraniteConfig", "smollm3": "SmolLM3Config", "kimi_k2": "DeepseekV3Config", "bert": "BertConfig",
           "hunyuan_v1_dense": "HunYuanDenseV1Config",
           "opt": "OPTConfig", "roberta": "RobertaConfig", "modernbert": "ModernBertConfig", "electra": "ElectraConfig", "xlm-roberta": "XLMRobertaConfig", "distilbert": "DistilBertConfig"}
# Families that transformers opens only as another: with code beside the weights, which is the other's.
OPENED_AS = {"kimi_k2": "deepseek_v3"}
# Encoders that predict masked tokens.
MASKED = ("roberta", "xlm-roberta", "distilbert", "modernbert", "electra")
