#!/usr/bin/env python3
"""Errors of log-likelihoods: `trifold serve` in f32 and f64 and transformers in f32 and f64, against arithmetic wholly in f64.

  judged_precision.py PROGRAM        with PyTorch and transformers 5 installed

The models are a GPT-2 and a Llama of six layers with random weights, the texts 8 of 200 tokens. Printed are the largest errors
of a token, of the sum over 20 tokens and of the sum over all. transformers computes the norms and the rotary angles of a Llama,
and the softmax of attention, in f32 whatever the type of the model; the exact figures are those with these parts in f64.
"""
import http.client
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from transformers.models.llama import modeling_llama

POSITIONS, TOKENS, VOCABULARY = 256, 200, 5000
GPT2 = {"n_embd": 256, "n_layer": 6, "n_head": 8, "n_positions": POSITIONS, "bos_token_id": 0, "eos_token_id": 0}
LLAMA = {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4,
         "max_position_embeddings": POSITIONS, "tie_word_embeddings": False}
MODELS = {"gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, initializer_range=0.08, **GPT2)),
          "llama": lambda: LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, initializer_range=0.08, **LLAMA))}


def log_likelihoods(model, ids):
    with torch.no_grad():
        values = torch.log_softmax(model(ids).logits, -1)
    return values[:, :-1].gather(-1, ids[:, 1:, None])[..., 0].double()


def exact(model, ids):
    """Of a model in f64, also with those parts in f64 that the library computes in f32."""
    softmax, norm = torch.nn.functional.softmax, modeling_llama.LlamaRMSNorm.forward

    def angles(_, position_ids, **__):
        width = model.config.hidden_size // model.config.num_attention_heads
        inverse = 1e4 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        angle = (position_ids[..., None].double() * inverse).repeat(1, 1, 2)
        return angle.cos(), angle.sin()

    torch.nn.functional.softmax = lambda x, dim=-1, dtype=None, **_: softmax(x, dim=dim)
    modeling_llama.LlamaRMSNorm.forward = lambda self, x: self.weight * (x * (x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon).rsqrt())
    if hasattr(model, "model"):
        model.model.rotary_emb.forward = angles
    try:
        return log_likelihoods(model, ids)
    finally:
        torch.nn.functional.softmax, modeling_llama.LlamaRMSNorm.forward = softmax, norm


def served(program, folder, ids, dtype):
    line = [program, "serve", "--load", str(folder), "--port", "0", "--tokenizer-type", "byte", "--dtype", dtype]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as server:
        try:
            port = next(int(text.split(":")[2].split("/")[0]) for text in server.stderr if text.startswith("serving"))
            rows = []
            for row in ids.tolist():
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
                body = json.dumps({"prompt": row, "echo": True, "logprobs": 1, "max_tokens": 0})
                connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
                answer = json.loads(connection.getresponse().read())
                rows.append(answer["choices"][0]["logprobs"]["token_logprobs"][1:])
            return torch.tensor(rows, dtype=torch.float64)
        finally:
            server.kill()


def main(program):
    torch.manual_seed(1)
    for name, make in MODELS.items():
        model = make().eval()
        model.config._attn_implementation = "eager"
        ids = torch.randint(0, 256, (8, TOKENS))
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            found = {f"trifold in {dtype}": served(program, pathlib.Path(folder), ids, dtype) for dtype in ("f32", "f64")}
        found["transformers in f32"] = log_likelihoods(model, ids)
        model = model.double()
        found["transformers in f64"] = log_likelihoods(model, ids)
        wanted = exact(model, ids)
        for what, values in found.items():
            error = values - wanted
            print(f"{name:5}  {what:20}  a token {error.abs().max():.1e}, 20 tokens {error[:, :20].sum(1).abs().max():.1e}, "
                  f"{TOKENS - 1} tokens {error.sum(1).abs().max():.1e}")


if __name__ == "__main__":
    main(sys.argv[1])
