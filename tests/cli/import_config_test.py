"""trifold import-config: what becomes of each key of DeepSpeed's JSON and accelerate's FSDP YAML."""

import json
import shlex
import unittest

from program import ProgramTest

# Key, value, and the options that it becomes, or else a part of its line.
DEEPSPEED = [
    ("train_batch_size", 32, "--global-batch-size 32"),
    ("train_micro_batch_size_per_gpu", 4, "--micro-batch-size 4"),
    ("train_micro_batch_size_per_gpu", "auto", "give --micro-batch-size"),
    ("gradient_accumulation_steps", 1, "a step is one micro-batch"),
    ("gradient_accumulation_steps", 8, "not available: give --global-batch-size"),
    ("optimizer.type", "AdamW", "--optimizer adam"),
    ("optimizer.type", "Lamb", "--optimizer lamb"),
    ("optimizer.type", "OneBitAdam", "not available: give --optimizer"),
    ("optimizer.params.lr", 0.001, "--lr 0.001"),
    ("optimizer.params.betas", [0.9, 0.95], "--adam-beta1 0.9 --adam-beta2 0.95"),
    ("optimizer.params.eps", 1e-8, "--adam-eps 1e-08"),
    ("optimizer.params.weight_decay", 0.1, "--weight-decay 0.1"),
    ("optimizer.params.adam_w_mode", False, "not available: adam decouples"),
    ("optimizer.params.torch_adam", True, "it chooses a kernel"),
    ("scheduler.type", "WarmupLR", "--lr-decay-style constant"),
    ("scheduler.type", "WarmupCosineLR", "--lr-decay-style cosine"),
    ("scheduler.type", "OneCycle", "not available: give --lr-decay-style"),
    ("scheduler.params.warmup_max_lr", 0.002, "scheduler.type is neither WarmupLR nor WarmupDecayLR"),
    ("gradient_clipping", 0.5, "--clip-grad 0.5"),
    ("communication_data_type", "bfp16", "--grad-reduce-in-bf16"),
    ("fp16.enabled", True, "--fp16"),
    ("fp16.enabled", False, "it is off, as it is here"),
    ("fp16.loss_scale", 128, "fp16.enabled is not true"),
    ("bf16.enabled", True, "--bf16"),
    ("zero_optimization.stage", 3, "--zero-stage 3"),
    ("zero_optimization.overlap_comm", True, "communication overlaps"),
    ("zero_optimization.reduce_bucket_size", 5e8, "it concerns the units in which ranks exchange"),
    ("zero_optimization.offload_optimizer.device", "cpu", "--offload host"),
    ("zero_optimization.offload_optimizer.nvme_path", "/x", "the device is not nvme"),
    ("zero_optimization.zero_quantized_weights", True, "not available"),
    ("zero_optimization.mics_shard_size", 8, "--zero-group-size 8"),
    ("activation_checkpointing.partition_activations", True, "--sequence-parallel"),
    ("tensor_parallel.autotp_size", 4, "--tensor-model-parallel-size 4"),
    ("steps_per_print", 50, "--log-interval 50"),
    ("wandb.enabled", True, "has the numbers of every step"),
    ("curriculum_learning.enabled", True, "not available: it changes the training"),
    ("checkpoint.load_universal", True, "a checkpoint loads on any mesh"),
]
ACCELERATE = [
    ("distributed_type", "FSDP", "fsdp_config says"),
    ("mixed_precision", "bf16", "--bf16"),
    ("mixed_precision", "fp8", "--bf16 --fp8"),
    ("num_processes", 4, "--ranks 4"),
    ("machine_rank", 0, "mpirun starts and connects the ranks"),
    ("use_cpu", True, "--device cpu"),
    ("gradient_clipping", 2.0, "--clip-grad 2.0"),
    ("fsdp_config.fsdp_sharding_strategy", "FULL_SHARD", "--zero-stage 3"),
    ("fsdp_config.fsdp_sharding_strategy", "SHARD_GRAD_OP", "--zero-stage 2"),
    ("fsdp_config.fsdp_sharding_strategy", "HYBRID_SHARD", "--zero-stage 3 --zero-group-size node"),
    ("fsdp_config.fsdp_reshard_after_forward", False, "--zero-stage 2"),
    ("fsdp_config.fsdp_offload_params", True, "not available: give --offload DIR"),
    ("fsdp_config.fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP", "units follow the layers"),
    ("fsdp_config.fsdp_activation_checkpointing", True, "--recompute-granularity full"),
    ("parallelism_config.tp_size", 2, "--tensor-model-parallel-size 2"),
    ("fp8_config.fp8_format", "E4M3", "not available: gradients are E5M2"),
]


# The optimizer and the scheduler of a file, and parts of what becomes of them. A part with a leading "-" is not there.
RATES = [
    ({"type": "SGD", "params": {"lr": 0.1}}, None, ["--optimizer sgd", "--sgd-momentum 0 ", "--weight-decay 0 "]),
    ({"type": "SGD", "params": {"momentum": 0.8, "eps": 1}}, None, ["--sgd-momentum 0.8 ", "sgd adds nothing to a divisor"]),
    ({"type": "Adam"}, None, ["--weight-decay 0 ", "- --sgd-momentum", "- trust ratio", "- --lr-warmup"]),
    ({"type": "Adagrad", "params": {"eps": 1e-5}}, None, ["--adagrad-eps 1e-05 ", "- --adam-eps"]),
    ({"type": "Lamb", "params": {"min_coeff": 0.1}}, None, ["min_coeff 0.1: not available", "max_coeff not given: not available"]),
    (None, {"type": "OneCycle"}, ["- --lr-warmup-iters", "- warmup_type"]),
    (None, {"type": "WarmupLR"}, ["--lr 0.001 ", "--lr-warmup-iters 1000 ", "warmup_type not given: not available", "- --min-lr"]),
    ({"type": "Adam", "params": {"lr": 3e-4}}, {"type": "WarmupLR", "params": {"warmup_num_steps": 1}},
     ["--lr 0.001 ", "- --lr 0.0003", "--lr-warmup-iters 2 "]),
    ({"type": "Adam", "params": {"lr": 3e-4}},
     {"type": "WarmupDecayLR", "params": {"warmup_max_lr": 0.01, "warmup_min_lr": 1e-5, "warmup_type": "linear", "total_num_steps": 99}},
     ["--lr 0.01 ", "--lr-warmup-init 1e-05 ", "--min-lr 1e-05 ", "--lr-decay-iters 99 ", "- warmup_type not given"]),
    ({"type": "Adam", "params": {"lr": 3e-4}}, {"type": "WarmupCosineLR", "params": {"warmup_type": "log", "warmup_num_steps": 7}},
     ["--lr 0.0003 ", "--min-lr 3e-08 ", "- cos_min_ratio", "warmup_type log: not available", "--lr-warmup-iters 7 "]),
    ({"type": "Adam", "params": {"lr": 3e-4}}, {"type": "WarmupCosineLR", "params": {"cos_min_ratio": 0.1, "warmup_min_ratio": 0.01}},
     ["--lr 0.0003 ", "--min-lr 3e-05 ", "--lr-warmup-init 3e-06 "]),
    ({"type": "Adam", "params": {"lr": "auto"}}, {"type": "WarmupCosineLR", "params": {"cos_min_ratio": 0.1}},
     ["cos_min_ratio 0.1: not available: give --min-lr: this times the rate", "- --min-lr 3"]),
    (None, {"type": "WarmupCosineLR"}, ["cos_min_ratio not given: not available"]),
    (None, {"type": "WarmupLR", "params": {"cos_min_ratio": 0.1}}, ["scheduler.type is not WarmupCosineLR"]),
    ({"type": "Lamb", "params": {"weight_decay": 0.02}}, None, ["--optimizer lamb", "--weight-decay 0.02 "]),
    ({"type": "Lamb", "params": {"weight_decay": 0}}, None, ["--optimizer lamb", "- --weight-decay 0 ", "weight_decay 0: not available: give"]),
    ({"type": "Lamb", "params": {"lr": 1}}, None, ["- --weight-decay 0 ", "weight_decay not given: not available: give --weight-decay above 0"]),
]
# Keys that a valid file has side by side.
NEIGHBOURS = [
    ({"fp16": {"enabled": True, "loss_scale": 128, "hysteresis": 2, "loss_scale_window": 9, "min_loss_scale": 1}}, "--fp16 --loss-scale 128 "),
    ({"fp16": {"enabled": True, "loss_scale": 0, "hysteresis": 3}}, "--fp16 --hysteresis 3 --initial-loss-scale 65536 "),
    ({"zero_optimization": {"offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "nvme", "nvme_path": "/x"}}}, "--offload /x "),
    ({"zero_optimization": {"offload_optimizer": {"device": "nvme", "nvme_path": "/y"},
                            "offload_param": {"device": "nvme", "nvme_path": "/x"}}}, "--offload /x "),
]


def nested(key, value):
    for name in reversed(key.split(".")):
        value = {name: value}
    return value


def yaml_text(value, indent=""):
    """YAML of an object; its scalars are as JSON writes them."""
    return "".join(f"{indent}{name}:\n{yaml_text(inner, indent + '  ')}" if isinstance(inner, dict)
                   else f"{indent}{name}: {json.dumps(inner)}\n" for name, inner in value.items())


class ImportConfig(ProgramTest):
    def read(self, text, *options, name="file", **more):
        (self.folder / name).write_text(text)
        return self.trifold("import-config", name, *options, **more)

    def check(self, key, text, expected):
        out, err = self.read(text)
        lines = [line for line in err.splitlines() if line.startswith(key + " ")]
        if expected.startswith("--"):
            self.assertEqual(lines, [])
            self.assertIn(" " + expected + " ", " " + out.strip() + " ")
        else:
            self.assertEqual(len(lines), 1, err)
            self.assertIn(expected, lines[0])

    def test_deepspeed(self):
        for key, value, expected in DEEPSPEED:
            with self.subTest(key, value=value):
                self.check(key, json.dumps(nested(key, value)), expected)

    def test_accelerate(self):
        for key, value, expected in ACCELERATE:
            with self.subTest(key, value=value):
                self.check(key, yaml_text(nested(key, value)), expected)

    def test_defaults_that_differ(self):
        out, err = self.read('{"optimizer": {"type": "Adam", "params": {"lr": 1}}, "fp16": {"enabled": true}}')
        self.assertIn("--weight-decay 0", out)
        self.assertIn("--initial-loss-scale 65536", out)
        self.assertNotIn("gradient_clipping", err)
        self.assertIn("--clip-grad 0", out)
        self.assertIn("--clip-grad 0", self.read("mixed_precision: 'no'\n")[0])

    def test_optimizers_and_schedulers(self):
        for optimizer, scheduler, parts in RATES:
            sections = {"optimizer": optimizer, "scheduler": scheduler}
            out, err = self.read(json.dumps({name: value for name, value in sections.items() if value}))
            result = out.replace("\n", " ") + err
            for part in parts:
                with self.subTest(sections, part=part):
                    if part.startswith("- "):
                        self.assertNotIn(part[2:], result)
                    else:
                        self.assertIn(part, result)

    def test_neighbours(self):
        for sections, expected in NEIGHBOURS:
            with self.subTest(sections):
                out, _ = self.read(json.dumps({**sections, "gradient_clipping": 1}))
                self.assertEqual(sorted(out.replace("--clip-grad 1", "").split()), sorted(expected.split()))

    def test_a_run_takes_what_is_printed(self):
        model = "--num-layers 2 --hidden-size 32 --num-attention-heads 2 --seq-length 32 --vocab-size 64 --mock-data --train-iters 9".split()
        for optimizer in ({"type": "SGD", "params": {"lr": 0.1}}, {"type": "Adagrad", "params": {"lr": 0.1, "eps": 1e-8, "betas": [0.9, 0.9]}},
                          {"type": "Lamb", "params": {"lr": 0.1}}):
            for scheduler in ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR"):
                with self.subTest(optimizer, scheduler=scheduler):
                    params = {"warmup_num_steps": 3, "warmup_min_lr": 1e-5, "total_num_steps": 9}
                    out, _ = self.read(json.dumps({
                        "train_micro_batch_size_per_gpu": 1, "optimizer": optimizer, "scheduler": {"type": scheduler, "params": params},
                        "fp16": {"enabled": True, "loss_scale": 128, "hysteresis": 2}}))
                    self.trifold("pretrain", *model, *shlex.split(out), "--print-config")

    def test_a_run_takes_both_forms(self):
        text = json.dumps({"train_micro_batch_size_per_gpu": 2, "train_batch_size": 4, "gradient_clipping": 1.5,
                           "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.8, 0.9]}},
                           "zero_optimization": {"stage": 2}, "steps_per_print": 1, "unknown": [1, 2]})
        line, err = self.read(text)
        self.assertIn("unknown 1 2: no key of DeepSpeed known here", err)
        config, _ = self.read(text, "--format", "config")
        (self.folder / "run.cfg").write_text(config)
        self.assertIn("# unknown 1 2: ", config)
        model = "--num-layers 2 --hidden-size 32 --num-attention-heads 2 --seq-length 32 --vocab-size 64 --mock-data --train-iters 2".split()
        self.trifold("pretrain", *model, *shlex.split(line), "--log-json", "line.jsonl")
        self.trifold("pretrain", *model, "--config", "run.cfg", "--log-json", "config.jsonl")
        self.assertEqual(len(self.losses("line.jsonl")), 2)
        self.assertEqual(self.losses("line.jsonl"), self.losses("config.jsonl"))

    def test_words_are_quoted(self):
        path = "a b'; $(touch x) \\"
        text = json.dumps({"zero_optimization": {"offload_optimizer": {"device": "nvme", "nvme_path": path}}})
        line, _ = self.read(text)
        self.assertIn(path, shlex.split(line))
        config, _ = self.read(text, "--format", "config")
        (self.folder / "c.cfg").write_text(config)
        self.assertIn("offload", config)

    def test_mistakes(self):
        for text, part in (("", "is empty"), ("[1]", "has no keys"), ("{", "file"), ('{"a": 1}', "has no key of DeepSpeed"),
                           ("\x00\x01", "file"), ("a: [", "file"), ("- a\n- b\n", "has no keys"), ("x", "has no keys"),
                           ('{"train_batch_size": "many"}', "train_batch_size: --global-batch-size 'many' is not a whole number"),
                           ('{"train_batch_size": {"a": {}}}', "has no key of DeepSpeed"),
                           ('{"train_batch_size": [1, 2]}', "takes one value, but 2 are given"),
                           ('{"optimizer": {"params": {"lr": "x"}}, "scheduler": {"type": "WarmupCosineLR"}}', "optimizer.params.lr: "),
                           ('{"optimizer": {"params": {"betas": [0.9]}}}', "optimizer.params.betas has 1 values, but 2 are needed"),
                           ('{"train_batch_size": 1e400}', "file"), ("{" * 100, "file"), ('{"a":' * 100 + "1" + "}" * 100, "file"),
                           ("&a [*a]", "file"),
                           ('{"fp16": {"enabled": true}, "fp16": {"enabled": false}}', 'has the key "fp16" twice')):
            with self.subTest(text[:40]):
                self.assertIn(part, self.read(text, status=2)[1])
        self.trifold("import-config", "nowhere", status=2)
        self.trifold("import-config", ".", status=2)
        (self.folder / "large").write_bytes(b" " * (1 << 21))
        self.trifold("import-config", "large", status=2)


if __name__ == "__main__":
    unittest.main()
