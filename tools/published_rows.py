"""A row of a table of published training runs (tests/golden/published_runs.csv): the options of `trifold plan` that
describe its machine, program, model and layout, and what was measured.

The behaviour of a run's program follows only from its source and columns; nothing is fitted here.
"""

import re


def number(text, default=None):
    try:
        return float(text)
    except ValueError:
        return default


def whole(row, name, default=None):
    value = number(row[name])
    return default if value is None else int(value)


def source_of(row):
    """The table that a row is from."""
    return re.sub(r"-\d+$", "", row["row_id"])


# ---- The machine -------------------------------------------------------------------------------------------

def hardware_options(row):
    gpu = row["gpu"].lower()
    name = next((name for name in ("b200", "h200", "h100") if name in gpu),
                "a100-40gb" if row["gpu_mem_gb"] == "40" else "a100-80gb")
    values = {}
    network = row["inter_node"]
    per_node = whole(row, "gpus_per_node", 8)
    adapters = re.match(r"(\d+)\s*x\s*(?:\w+ )*?(\d+)\s*Gb/s", network.replace("HDR IB", "").replace("NDR IB", ""))
    whole_node = re.match(r"(\d+) (Gb|Tb)/s", network)
    if "Omni-Path" in network:  # Jean Zay: "NVLink 4 inter-gpu connects, 4 OmniPath links" (README of tr11-176B-ml)
        values = {"nvlink-gbytes": 4 * 25, "adapter-gbytes": 4 * 100 / 8 / per_node, "network-share": 0.352}
    elif "ConnectX-6" in network:
        values["adapter-gbytes"] = 4 * 200 / 8 / per_node
    elif adapters:
        values["adapter-gbytes"] = float(adapters[1]) * float(adapters[2]) / 8 / per_node
    elif whole_node and "per GPU" not in network:
        scale = 1000 if whole_node[2] == "Tb" else 1
        values["adapter-gbytes"] = float(whole_node[1]) * scale / 8 / per_node
    if "500W" in row["gpu"]:
        limited = 0.778  # of the rates of a card without this limit
        values |= {"product-share": 0.664 * limited, "product-share-8bit": 0.670 * limited,
                   "attention-share": 0.436 * limited, "memory-gib": 96, "memory-gbytes": 2400}
    options = ["--hardware", name]
    if values:
        options += ["--hardware-set"] + [f"{key}={value:.6g}" for key, value in values.items()]
    return options


# ---- The program -------------------------------------------------------------------------------------------

MEGATRON_2021 = {"attention": "unfused", "overlap-gradients": 0, "overlap-messages": 0, "scatter-messages": 1,
                 "accumulate-in-product": 0, "gradient-bytes": 2, "activations": "fused"}
MEGATRON_2022 = MEGATRON_2021 | {"backward-overlap": 1, "accumulate-in-product": 1, "gradient-bytes": 4}
# DeepSpeed's tensor ranks sent a part of each activation (pipe/engine.py: is_pipe_partitioned), and from the end of
# September 2021 on of each gradient (is_grad_partitioned, in its "Big science related changes").
DEEPSPEED_2021 = MEGATRON_2021 | {"scatter-messages": 0.5}
DEEPSPEED_2022 = MEGATRON_2021 | {"scatter-messages": 1}
# DeepSpeed's bf16_optimizer.py adds gradients in 16 bits, which stay in memory, to sums in f32.
BF16_OPTIMIZER = {"weight-copy-bytes": 2}
# A LayerNorm and a GELU are one operation each also where nothing is fused by hand.
FSDP = {"fused-elementwise": 0, "accumulate-in-product": 0, "activations": "eager"}
# User buffers; products in 8 bits keep their inputs in 8 bits, and both orders of each weight.
NEMO = {"tensor-overlap": 0.8, "activations": "fused"}
NEMO_8BIT = NEMO | {"input-bytes": 1, "weight-copy-bytes": 2}


def torchtitan_software(row):
    """Layers were compiled, from 2025 on the loss as well; over tensor ranks the loss is made of single operations, which
    have four copies of the logits in f32 in memory. Inputs that tensor ranks gather stay in memory. The oldest runs had
    fused norms. Asynchronous tensor ranks overlap half of their collectives: Llama 3 70B gains 8 % by them (PyTorch's
    announcement, discuss.pytorch.org/t/209487), 9 and 16 % (benchmarks/asyncTP_llama3_h100_2025-06), of the fifth of its
    step that they take. The schedules of torch.distributed.pipelining wait for the messages of each action."""
    notes = row["notes"].lower()
    compiled = "compile" in notes or "asynctp" in row["table"].lower() or "fp8" in row["precision"]
    loss = 16 if whole(row, "tp") > 1 else 4 if compiled and "2025" in row["source"] else 0
    return FSDP | {"fused-elementwise": int(compiled), "gradient-bytes": 4, "overlap-messages": 0,
                   "tensor-overlap": 0.5 if "async tp" in notes or "asynctp" in notes else 0, "balanced-context": 0,
                   "activations": "compiled" if compiled else "eager", "gathered-inputs": 1, "loss-bytes": loss,
                   "fused-norms": int("performance.md" in row["source"])}


def runs_on_deepspeed_pipelines(row):
    one_of_several = "single" in source_of(row) and row["zero_stage"] != "3" and "340B" not in row["model"]
    return "bloom" in source_of(row) or one_of_several


def software_of(row):
    """What the program of a run did, and the dropout that its papers' recipes used."""
    source = source_of(row)
    schedule = row["schedule"]
    if "sc21" in source:
        if whole(row, "zero_stage", 0) == 3:
            return FSDP | {"attention": "unfused", "gradient-bytes": 2, "adapters-per-collective": 1}, 0.1
        return MEGATRON_2021 | ({"scatter-messages": 0} if "OFF" in schedule else {}), 0.1
    if "korthikanti" in source:
        return MEGATRON_2022, 0.1
    if "bloom" in source:  # Megatron-LM's dropout, says the README of tr11-176B-ml
        return DEEPSPEED_2022 | (BF16_OPTIMIZER if "BF16 optimizer" in row["notes"] else {}), 0.1
    if "zero_bubble" in source:  # its scripts leave Megatron-LM's dropout as it is
        return MEGATRON_2022, 0.1
    if "megascale" in source:
        return MEGATRON_2022, 0
    if runs_on_deepspeed_pipelines(row):
        return DEEPSPEED_2021, 0.1 if "MT-NLG" in row["model"] else 0
    if "single" in source:
        return FSDP | {"attention": "unfused"} if row["zero_stage"] == "3" else NEMO, 0
    if "mosaic" in source:
        pure = "PURE" in row["precision"]
        return FSDP | {"attention": "flash", "gradient-bytes": 2 if pure else 4, "loss-bytes": 4}, 0  # a fused loss
    if "torchtitan" in source:
        return torchtitan_software(row), 0
    if "nemo" in source:
        return NEMO_8BIT if "fp8" in row["precision"] else NEMO, 0
    # Llama 3 says of data-parallel collectives and of messages alone that they are asynchronous (section 3.3.2).
    return {"activations": "fused"}, 0


# ---- The plan ----------------------------------------------------------------------------------------------

SCHEDULES = (("zb-1p", "zb-h1"), ("zb-2p", "zb-h2"), ("zb-h1", "zb-h1"), ("zb-h2", "zb-h2"), ("zb-v", "zb-v"),
             ("interleaved", "interleaved"), ("1f1b-i", "interleaved"), ("gpipe", "gpipe"), ("1f1b", "1f1b"))


def schedule_of(row):
    text = row["schedule"].lower()
    return next((ours for theirs, ours in SCHEDULES if theirs in text), "1f1b")


def batch_of(row):
    """(micro-batch, global batch, data ranks)."""
    data = whole(row, "dp", 1)
    batch = whole(row, "global_batch")
    micro = whole(row, "micro_batch")
    if micro is None and batch is not None and "torchtitan" in source_of(row):  # by default as many micro-batches as pipeline ranks
        micro = batch // data // whole(row, "pp")
    micro = micro or 1
    if batch is None:
        batch = micro * data * whole(row, "num_microbatches", 1)
    unit = micro * data
    return micro, max(1, round(batch / unit)) * unit, data


def stages_of(row, layers, pipeline):
    """Stages a rank: where a table does not say it, torchtitan's default, those of one layer of Llama 3, whose first
    has the embedding alone (section 3.3.2), else the most that divide the layers, up to 4."""
    if schedule_of(row) != "interleaved" or pipeline == 1:
        return 1
    given = whole(row, "vpp")
    if given and given > 1:
        return given
    if "torchtitan" in source_of(row):
        return 2
    if "llama3" in source_of(row):
        return (layers + 2) // pipeline
    return next((n for n in (4, 3, 2) if layers % (pipeline * n) == 0 or (layers + 2) % (pipeline * n) == 0), 1)


def model_options(row):
    heads = whole(row, "heads")
    options = ["--num-layers", whole(row, "layers"), "--hidden-size", whole(row, "hidden"),
               "--num-attention-heads", heads, "--seq-length", whole(row, "seq_len"),
               "--vocab-size", whole(row, "vocab", 51200)]
    hidden, inner = whole(row, "hidden"), whole(row, "ffn")
    groups = whole(row, "kv_heads", heads)
    if groups != heads:
        options += ["--group-query-attention", "--num-query-groups", groups]
    if hidden % heads:
        options += ["--kv-channels", 8 * max(1, round(hidden / heads / 8))]
    gated = re.search(r"llama|^l[23]", row["model"].lower()) is not None
    if "NeoX" in row["model"]:  # configs/20B.yml
        options += ["--untie-embeddings-and-output-weights", "--position-embedding-type", "rope"]
    if gated:
        options += ["--swiglu", "--untie-embeddings-and-output-weights", "--position-embedding-type", "rope",
                    "--normalization", "RMSNorm"]
    if inner:
        options += ["--ffn-hidden-size", inner]
    return options


# torchtitan's selective recomputation, as `--recompute-granularity full` with these: of every second product, which is
# its default, or of every second layer.
HALF_OF_PRODUCTS = {"recompute-fraction": 0.5, "recompute-products": 1}
HALF_OF_LAYERS = {"recompute-fraction": 0.5}


def recomputes_half(row):
    return "torchtitan" in source_of(row) and row["recompute"].startswith("selective")


def recompute_options(row):
    recompute = row["recompute"].split()[0].lower() if row["recompute"] else "none"
    if recompute not in ("full", "selective"):
        return []
    return ["--recompute-granularity", "full" if recomputes_half(row) else recompute]


def mesh_options(row, data):
    tensor, pipeline, context = whole(row, "tp"), whole(row, "pp"), whole(row, "cp", 1)
    layers = whole(row, "layers")
    options = ["--ranks", tensor * pipeline * data, "--tensor-model-parallel-size", tensor,
               "--pipeline-model-parallel-size", pipeline, "--schedule", schedule_of(row)]
    if pipeline == 1:
        options = options[:-1] + ["1f1b"]
    else:
        stages = stages_of(row, layers, pipeline)
        if schedule_of(row) == "interleaved" and stages == 1:
            options[-1] = "1f1b"
        elif stages > 1:
            options += ["--num-virtual-stages-per-pipeline-rank", stages]
        options += ["--pipeline-cut", "even"]
        if layers % (pipeline * stages) and (layers + 2) % (pipeline * stages) == 0:
            options += ["--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"]
    stage = {"fsdp": 3, "2-lik": 2, "distr": 1}.get(row["zero_stage"][:5].lower(), whole(row, "zero_stage", 0))
    if pipeline > 1 and stage == 3:
        stage = 2
    if data * context > 1:
        options += ["--zero-stage", stage]
    if data > 1 and stage == 3:  # gradients are sharded as soon as they are computed
        options += ["--zero-reduce", "each"]
    source = source_of(row)
    modern = "nemo" in source or (source.startswith(("torchtitan", "llama3", "single")) and whole(row, "seq_len") > 2048)
    if tensor > 1 and (row["seq_parallel"] == "1" or modern):
        options += ["--sequence-parallel"]
    return options + recompute_options(row)


def recomputed_parts(row):
    """The part of `--recompute-granularity full` that the run recomputed."""
    if not recomputes_half(row):
        return {}
    return HALF_OF_LAYERS if "layer" in row["recompute"] else HALF_OF_PRODUCTS


def job_options(row, recomputed=None):
    """What is trained, on what and by which program: all but the mesh, the batch and what is recomputed. `recomputed`:
    the part of layers that are, as the run did by default."""
    software, dropout = software_of(row)
    software = {"figures": "fitted"} | software | (recomputed_parts(row) if recomputed is None else recomputed)
    if whole(row, "cp", 1) > 1:
        software["context-parallel"] = whole(row, "cp")
    options = model_options(row) + hardware_options(row)
    options += ["--assume"] + [f"{key}={value}" for key, value in software.items()]
    options += ["--bf16"]
    if "fp8" in row["precision"]:
        options += ["--fp8", "--device", "cuda"]
    if dropout:
        options += ["--hidden-dropout", dropout, "--attention-dropout", dropout]
    return [str(option) for option in options]


def options_of(row):
    micro, batch, data = batch_of(row)
    layout = mesh_options(row, data) + ["--micro-batch-size", micro, "--global-batch-size", batch]
    return job_options(row) + [str(option) for option in layout]


# ---- What was measured -------------------------------------------------------------------------------------

def model_flops(row, vocab_and_all=True):
    """Of one sample, forward and backward, attention's square whole (arXiv 2104.04473, equation 3, without recompute)."""
    layers, hidden, length = (number(row[name]) for name in ("layers", "hidden", "seq_len"))
    inner = number(row["ffn"], 4 * hidden)
    gates = 3 if re.search(r"llama|^l[23]", row["model"].lower()) else 2
    heads = number(row["heads"])
    keys = number(row["kv_heads"], heads) / heads
    weights = layers * (hidden * hidden * (2 + 2 * keys) + gates * hidden * inner)
    return 6 * length * (weights + hidden * number(row["vocab"], 51200)) + 12 * layers * hidden * length * length


def neox_flops(row):
    """Of one sample, as GPT-NeoX counted them when it was published (get_flops in megatron/logging.py until 2023):
    nothing for recomputation, but five times attention's square."""
    layers, hidden, length, vocab = (number(row[name]) for name in ("layers", "hidden", "seq_len", "vocab"))
    weights = 12 * layers * hidden * hidden + 2 * vocab * hidden
    return length * (6 * weights + 60 * length * hidden * layers)


def measured_seconds(row):
    _, batch, _ = batch_of(row)
    devices = whole(row, "gpus")
    if number(row["iter_time_s"]):
        return number(row["iter_time_s"]) * batch / (whole(row, "global_batch") or batch)
    if number(row["tokens_per_s_gpu"]):
        return batch * whole(row, "seq_len") / (number(row["tokens_per_s_gpu"]) * devices)
    if number(row["tokens_per_s"]):
        return batch * whole(row, "seq_len") / number(row["tokens_per_s"])
    if number(row["samples_per_s_gpu"]):
        return batch / (number(row["samples_per_s_gpu"]) * devices)
    peak = number(row["peak_tflops"])
    rate = number(row["tflops_gpu"]) or (number(row["mfu_pct"], 0) / 100 * peak if peak else None)
    if not rate:
        return None
    if "under-reported ~3%" in row["notes"]:
        rate *= 1.03
    if "NeoX" in row["model"]:
        return batch * neox_flops(row) / (devices * rate * 1e12)
    flops = batch * model_flops(row)
    if "model" not in row["tflops_kind"] and row["recompute"].startswith("full"):
        layers_only = flops - 6 * batch * number(row["seq_len"]) * number(row["hidden"]) * number(row["vocab"], 51200)
        flops += layers_only / 3
    return flops / (devices * rate * 1e12)


def described(row):
    """Whether a row says what was run, of a program whose model is Trifold's."""
    needed = ("layers", "hidden", "heads", "seq_len", "gpus", "tp", "pp", "dp")
    other_model = "SYSTEM=MegaScale" in row["notes"] or row["notes"].startswith("+")
    return not other_model and all(number(row[name]) is not None for name in needed)


def plannable(row):
    return described(row) and measured_seconds(row) is not None


def ran(row):
    """Whether it fitted in its devices' memory."""
    return not row["notes"].startswith("OOM")


def same_job(row):
    """Rows that agree in this do the same work on as many devices; heads, mesh, micro-batch and schedule may differ."""
    return tuple(row[name] for name in ("layers", "hidden", "seq_len", "gpus", "global_batch", "precision"))
