#!/usr/bin/env python3
"""Direct preference optimization of a small GPT-2 in PyTorch, in double precision, with which Trifold is compared.

    python3 tools/reference/dpo_torch.py tests/golden/dpo_torch.json
    python3 tools/reference/dpo_torch.py tests/golden/dpo_ipo_torch.json ipo
    python3 tools/reference/dpo_torch.py check        # against transformers, and trl where it is installed

Needs Debian's python3-torch. It shares no code with Trifold; the file is as gpt_torch.py describes, with a smaller model
and other samples: seq_length tokens, as many labels, as many weights (1: the label is a token of the answer). Samples 2i
and 2i + 1 are the chosen and the rejected answer to one prompt. The file also holds the loss ("loss", "beta",
"label_smoothing"), the log-likelihoods of all samples under the initial model, which is the reference ("reference",
[step][sample]), and the rewards of every step, means over its pairs ("rewards": chosen, rejected, margin, accuracy).

sigmoid: m = beta ((p_c - q_c) - (p_r - q_r)), the loss is -(1 - e) log sigmoid(m) - e log sigmoid(-m); p are
log-likelihoods of answers, q the reference's. ipo: p and q are means over the tokens of an answer, and the loss is
((p_c - q_c) - (p_r - q_r) - 1 / (2 beta))^2. Both are means over pairs.
"""

import sys

import torch
import torch.nn.functional as F

import golden_json
import gpt_torch as gpt

CONFIG = gpt.CONFIG
CONFIG.update(num_layers=1, hidden_size=16, ffn_hidden_size=32, global_batch_size=8, lr=0.003, min_lr=0.001)
LOSS = {"loss": "sigmoid", "beta": 0.5, "label_smoothing": 0.1}


def training_batches():
    """Pairs of answers of random lengths to a common prompt: the chosen ones follow a rule more often."""
    vocab, seq, state = CONFIG["vocab_size"], CONFIG["seq_length"], 3

    def draw(n):
        nonlocal state
        state = gpt.mix(state)
        return (state >> 8) % n

    def answer(prompt, rule):
        ids = list(prompt)
        for _ in range(2 + draw(seq - len(prompt) - 2)):
            ids.append((3 * ids[-1] + 7) % vocab if draw(4) < rule else draw(vocab))
        inputs, labels = ids[:-1], ids[1:]
        weights = [int(t + 1 >= len(prompt)) for t in range(len(inputs))]
        rest = [0] * (seq - len(inputs))
        return inputs + rest + labels + rest + weights + rest

    def pair():
        prompt = [draw(vocab) for _ in range(1 + draw(seq // 2))]
        return [answer(prompt, 3), answer(prompt, 1)]

    return [[sample for _ in range(CONFIG["global_batch_size"] // 2) for sample in pair()]
            for _ in range(CONFIG["train_iters"])]


def unpacked(samples):
    seq = CONFIG["seq_length"]
    return samples[:, :seq], samples[:, seq:2 * seq], samples[:, 2 * seq:].double()


def logits_of(p, ids):
    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], p[name + ".gain"], p[name + ".bias"], CONFIG["norm_epsilon"])

    x = p["embedding.tokens.weight"][ids] + p["embedding.positions.weight"][: ids.shape[1]]
    for layer in range(CONFIG["num_layers"]):
        block = f"block.{layer}."
        x = x + gpt.attention(norm(x, block + "norm1"), p, block + "attention.")
        up = F.linear(norm(x, block + "norm2"), p[block + "mlp.up.weight"], p[block + "mlp.up.bias"])
        x = x + F.linear(F.gelu(up, approximate="tanh"), p[block + "mlp.down.weight"], p[block + "mlp.down.bias"])
    return (norm(x, "final_norm") @ p["embedding.tokens.weight"].T)[..., : CONFIG["vocab_size"]]


def likelihoods(logits, labels, weights):
    """[samples] sums over the answers, or their means over tokens for ipo."""
    if LOSS["loss"] == "ipo":
        weights = (weights / weights.sum(1, keepdim=True)).float().double()  # Trifold's weights are f32
    return (torch.log_softmax(logits, dim=-1).gather(-1, labels[..., None])[..., 0] * weights).sum(1)


def pair_loss(ours, reference):
    """The loss, and the mean rewards."""
    beta, smoothing = LOSS["beta"], LOSS["label_smoothing"]
    chosen, rejected = ((ours - reference)[place::2] for place in range(2))
    difference = chosen - rejected
    if LOSS["loss"] == "ipo":
        losses = (difference - 1 / (2 * beta)) ** 2
    else:
        losses = -(1 - smoothing) * F.logsigmoid(beta * difference) - smoothing * F.logsigmoid(-beta * difference)
    rewards = {"chosen": beta * chosen, "rejected": beta * rejected, "margin": beta * difference,
               "accuracy": (difference > 0).double()}
    return losses.mean(), {name: value.mean().item() for name, value in rewards.items()}


def initial_parameters():
    return {entry[0]: gpt.initial(t, *entry[1:4]) for t, entry in enumerate(gpt.parameter_list())}


def reference_values(batches):
    p = initial_parameters()
    with torch.no_grad():
        for samples in batches:
            tokens, labels, weights = unpacked(torch.tensor(samples))
            yield likelihoods(logits_of(p, tokens), labels, weights)


def golden():
    batches, rewards = training_batches(), []
    reference = list(reference_values(batches))

    def loss_of(p, samples):
        tokens, labels, weights = unpacked(samples)
        loss, means = pair_loss(likelihoods(logits_of(p, tokens), labels, weights), reference[len(rewards)])
        rewards.append(means)
        return loss

    file = gpt.reference("tools/reference/dpo_torch.py", gpt.parameter_list(), loss_of, batches)
    return {**file, **LOSS, "reference": [values.tolist() for values in reference],
            "rewards": {name: [step[name] for step in rewards] for name in rewards[0]}}


def check():
    """The same weights in transformers' GPT2LMHeadModel: largest differences of ten losses, relative; and one loss of
    trl's trainer."""
    from transformers import GPT2Config, GPT2LMHeadModel

    vocab = CONFIG["vocab_size"]
    model = GPT2LMHeadModel(GPT2Config(
        vocab_size=vocab, n_positions=CONFIG["max_position_embeddings"], n_embd=CONFIG["hidden_size"],
        n_layer=CONFIG["num_layers"], n_head=CONFIG["num_attention_heads"], n_inner=CONFIG["ffn_hidden_size"],
        layer_norm_epsilon=CONFIG["norm_epsilon"], resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        attn_implementation="eager")).double()
    p, width = initial_parameters(), CONFIG["hidden_size"]
    named = dict(model.named_parameters())
    ours = {"transformer.wte.weight": p["embedding.tokens.weight"][:vocab],
            "transformer.wpe.weight": p["embedding.positions.weight"],
            "transformer.ln_f.weight": p["final_norm.gain"], "transformer.ln_f.bias": p["final_norm.bias"]}
    for layer in range(CONFIG["num_layers"]):
        theirs, block = f"transformer.h.{layer}.", f"block.{layer}."
        for norm in ("1", "2"):
            ours[theirs + f"ln_{norm}.weight"] = p[block + f"norm{norm}.gain"]
            ours[theirs + f"ln_{norm}.bias"] = p[block + f"norm{norm}.bias"]
        for name, other in (("attn.c_attn", "attention.qkv"), ("attn.c_proj", "attention.out"),
                            ("mlp.c_fc", "mlp.up"), ("mlp.c_proj", "mlp.down")):
            weight, bias = p[block + other + ".weight"], p[block + other + ".bias"]
            ours[theirs + name + ".weight"] = weight.reshape(-1, weight.shape[-1]).T
            ours[theirs + name + ".bias"] = bias.reshape(-1)
    assert sorted(named) == sorted(ours), sorted(named)
    assert width == model.config.n_embd
    with torch.no_grad():
        for name, value in ours.items():
            named[name].copy_(value)
    batches = training_batches()
    reference = list(reference_values(batches))
    expected = golden()
    steps = iter(range(len(batches)))

    def their_loss(samples):
        tokens, labels, weights = unpacked(torch.tensor(samples))
        return pair_loss(likelihoods(model(input_ids=tokens).logits, labels, weights), reference[next(steps)])[0]

    losses = gpt.other_losses(named, lambda name: name.endswith(".weight") and "ln_" not in name, their_loss, batches)
    print("transformers: ten losses", max(abs(a / b - 1) for a, b in zip(losses, expected["losses"])))
    compare_with_trl(model, batches, reference)


def compare_with_trl(model, batches, reference):
    """Losses of the trained model, of the first samples, by trl's trainer; its log-likelihoods are in f32."""
    try:
        import trl
    except ImportError:
        return print("trl is not installed")
    from datasets import Dataset
    from datasets.table import InMemoryTable
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    class Trainer(trl.DPOTrainer):
        def _prepare_dataset(self, dataset, *_):
            return dataset  # of tokens already

        def _precompute_ref_logps(self, dataset, *_):
            return dataset  # which has them

    def ids_of(sample):
        seq = CONFIG["seq_length"]
        inputs, labels, weights = sample[:seq], sample[seq:2 * seq], sample[2 * seq:]
        answer = [t for t in range(seq) if weights[t]]
        return inputs[:answer[0] + 1], [labels[t] for t in answer]

    samples, values = batches[0], reference[0].tolist()
    rows = []
    for chosen, rejected, q_chosen, q_rejected in zip(samples[::2], samples[1::2], values[::2], values[1::2]):
        prompt, answer = ids_of(chosen)
        rows.append({"prompt_ids": prompt, "chosen_ids": answer, "rejected_ids": ids_of(rejected)[1],
                     "ref_chosen_logps": q_chosen, "ref_rejected_logps": q_rejected})
    words = {f"t{i}": i for i in range(CONFIG["vocab_size"])}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, "t0")), pad_token="t0",
                                        eos_token="t0")
    tokens, labels, weights = unpacked(torch.tensor(samples))
    for loss in ("sigmoid", "ipo"):
        LOSS.update(loss=loss, label_smoothing=0.0)
        with torch.no_grad():
            ours = likelihoods(model(input_ids=tokens).logits, labels, weights)
            sums = torch.tensor(values) if loss == "sigmoid" else torch.tensor(values) / weights.sum(1)
            expected = pair_loss(ours, sums)[0].item()
        args = trl.DPOConfig(output_dir="unused", loss_type=[loss], beta=LOSS["beta"], use_cpu=True, report_to=[],
                             precompute_ref_log_probs=True, per_device_train_batch_size=len(rows), bf16=False,
                             gradient_checkpointing=False, remove_unused_columns=False)
        trainer = Trainer(model=model, args=args, processing_class=tokenizer,
                          train_dataset=Dataset(InMemoryTable.from_pylist(rows), fingerprint="pairs"))
        batch = next(iter(trainer.get_train_dataloader()))
        with torch.no_grad():
            theirs = trainer.compute_loss(trainer.model, batch).item()
        print(f"trl {trl.__version__}: {loss}", abs(theirs / expected - 1))


def main():
    if sys.argv[1:] == ["check"]:
        return check()
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["ipo"]):
        sys.exit("usage: dpo_torch.py OUTPUT.json [ipo], or dpo_torch.py check")
    if sys.argv[2:]:
        LOSS.update(loss="ipo", label_smoothing=0.0)
    return golden_json.write(sys.argv[1], golden())


if __name__ == "__main__":
    main()
