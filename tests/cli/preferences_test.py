"""A GPT tuned on preferences from the command line: margins grow, alike on any mesh, and a stopped run resumes exactly."""

import json
import random
import re
import shutil
import unittest

from program import ProgramTest

TUNE = "--micro-batch-size 4 --global-batch-size 8 --lr 2e-3 --lr-decay-style constant --threads-per-rank 1".split()
LONG = 48


class Preferences(ProgramTest):
    def setUp(self):
        super().setUp()
        self.random = random.Random(4)

    def pretrained(self, *arguments):
        self.pretrain("--seq-length", LONG, "--train-iters", 5, "--save", "base", *arguments)

    def write_pairs(self, name, count, **other):
        """The preferred answer repeats the prompt's word in capitals."""
        lines = []
        for _ in range(count):
            word = "".join(self.random.choice("abcd") for _ in range(4))
            wrong = "".join(self.random.choice("xyz") for _ in range(self.random.randrange(3, 9)))
            lines.append(json.dumps({"prompt": f"say {word}: ", "chosen": word.upper(), "rejected": wrong, **other}))
        (self.folder / name).write_text("\n".join(lines) + "\n")

    def dpo(self, *arguments, **options):
        usual = [word for pair in zip(TUNE[::2], TUNE[1::2]) if pair[0] not in arguments for word in pair]
        return self.trifold("finetune", "--task", "dpo", "--load", "base", *usual, *arguments, **options)

    def values(self, name, key):
        return [line[key] for line in self.log(name) if key in line]

    def test_margins_grow_alike_on_every_mesh(self):
        self.pretrained()
        self.write_pairs("train.jsonl", 40)
        self.write_pairs("valid.jsonl", 9)
        files = ["--train-data", "train.jsonl", "--valid-data", "valid.jsonl", "--train-iters", 30]
        meshes = {"one": [], "tensor": ["--ranks", 2, "--tp", 2, "--sequence-parallel"],
                  "row": ["--ranks", 2, "--pp", 2, "--schedule", "zb-h1"],
                  "many": ["--ranks", 4, "--cp", 2, "--dp", 2, "--zero-stage", 1]}
        for name, mesh in meshes.items():
            steps = [] if name == "one" else ["--exit-interval", 8]
            _, text = self.dpo(*files, *steps, *mesh, "--log-json", name + ".jsonl", "--save", name, "--log-interval", 1)
            self.assertRegex(text, r"step +1/30 +loss 0\.6931 +reward chosen .* reward margin .* reward accuracy ")
        margins, losses = self.values("one.jsonl", "reward_margin"), self.losses("one.jsonl")
        self.assertEqual(margins[0], 0)
        self.assertGreater(margins[-1], 0.5)
        self.assertLess(losses[-1], 0.5)
        self.assertEqual(self.values("one.jsonl", "reward_accuracy")[-1], 1)
        for chosen, rejected, margin in zip(self.values("one.jsonl", "reward_chosen"),
                                            self.values("one.jsonl", "reward_rejected"), margins):
            self.assertAlmostEqual(chosen - rejected, margin, places=9)
        for name in ("tensor", "row", "many"):
            for a, b in zip(losses, self.losses(name + ".jsonl")):
                self.assertLess(abs(a - b), 1e-4, name)
        self.assertEqual(losses[:8], self.losses("row.jsonl"))
        self.assertGreater(self.values("one.jsonl", "valid_reward_margin")[-1], 0.5)
        self.assertEqual(self.values("one.jsonl", "valid_reward_accuracy")[-1], 1)
        # The tuned model is a GPT like any other, and is compared with its reference again.
        self.trifold("generate", "--load", "one", "--prompt", "say abcd: ", "--max-new-tokens", 4)
        _, text = self.trifold("finetune", "--task", "dpo", "--load", "one", *TUNE[:2], *TUNE[-2:], "--valid-data",
                               "valid.jsonl", "--dpo-reference-model", "base")
        self.assertRegex(text, r"validation loss 0\.\d+ +reward chosen .*\(9 pairs in")
        again = float(re.search(r"reward margin (\S+)", text)[1])
        self.assertAlmostEqual(again, self.values("one.jsonl", "valid_reward_margin")[-1], places=3)

    def test_a_stopped_run_goes_on_to_the_last_bit(self):
        self.pretrained()
        self.write_pairs("train.jsonl", 21)
        line = ["--train-data", "train.jsonl", "--train-epochs", 3, "--hidden-dropout", 0.1]
        self.dpo(*line, "--log-json", "whole.jsonl")
        self.assertEqual(len(self.losses("whole.jsonl")), 16)
        for i in range(4):
            _, text = self.dpo(*line, "--save", "run", "--auto-resume", "--exit-interval", 4, "--log-json", "parts.jsonl")
            self.assertIn("read from run/reference-" if i else "and kept in run/reference-", text)
        self.assertEqual(self.losses("whole.jsonl"), self.losses("parts.jsonl"))
        self.assertEqual(len(list((self.folder / "run").glob("reference-*.npy"))), 1)
        # Other runs read the values too, and the run resumes with the same goal alone.
        _, text = self.dpo(*line[:2], "--train-iters", 1, "--dpo-reference-folder", "run", "--dpo-beta", 0.5)
        self.assertIn("read from run/reference-", text)
        _, text = self.dpo("--train-data", "train.jsonl", "--train-epochs", 4, "--hidden-dropout", 0.1, "--save", "run",
                           "--auto-resume", "--dpo-beta", 0.5, status=2)
        self.assertIn("with beta 0.1", text)

    def test_damaged_values_of_a_reference_are_refused(self):
        self.pretrained()
        self.write_pairs("train.jsonl", 16)
        line = ["--train-data", "train.jsonl", "--train-iters", 4, "--save", "run", "--auto-resume"]
        self.dpo(*line, "--exit-interval", 2)
        (file,) = (self.folder / "run").glob("reference-*.npy")
        content = bytearray(file.read_bytes())
        content[-20] ^= 1
        file.write_bytes(content)
        _, text = self.dpo(*line, status=2)
        self.assertIn(f"run/{file.name} is damaged", text)

    def test_references_with_other_adapters_are_others(self):
        """Folders of peft with the same adapters, but another scale, or on other weights."""
        self.pretrained()
        self.write_pairs("train.jsonl", 16)
        for name, seed in (("model", 1), ("other", 2)):
            self.pretrain("--seq-length", LONG, "--train-iters", 5, "--seed", seed, "--save", name + ".run")
            self.trifold("convert", "--load", name + ".run", "--save", name)
        self.pretrain("--seq-length", LONG, "--load", "model", "--lora-rank", 2, "--lora-alpha", 2, "--lora-targets", "qkv",
                      "--train-iters", 4, "--lr", 0.05, "--save", "run")
        self.trifold("convert", "--load", "run", "--save", "one")
        config = json.loads((self.folder / "one" / "adapter_config.json").read_text())
        first = {}
        for name, changes in {"one": {}, "scaled": {"lora_alpha": 40},
                              "moved": {"base_model_name_or_path": str(self.folder / "other")}}.items():
            if changes:
                shutil.copytree(self.folder / "one", self.folder / name)
            (self.folder / name / "adapter_config.json").write_text(json.dumps({**config, **changes}))
            for folder in ("kept", f"new_{name}"):
                self.dpo("--train-data", "train.jsonl", "--train-iters", 1, "--dpo-reference-model", name,
                         "--dpo-reference-folder", folder, "--log-json", f"{folder}_{name}.jsonl")
            first[name] = self.losses(f"new_{name}_{name}.jsonl")
            self.assertEqual(self.losses(f"kept_{name}.jsonl"), first[name])
        self.assertEqual(len({tuple(losses) for losses in first.values()}), 3)

    def test_losses_and_references_differ(self):
        self.pretrained()
        self.write_pairs("train.jsonl", 16)
        line = ["--train-data", "train.jsonl", "--train-iters", 3]
        first = {}
        for name, options in {"ipo": ["--dpo-loss", "ipo"], "none": ["--dpo-reference", "none"],
                              "smooth": ["--dpo-label-smoothing", 0.2]}.items():
            self.dpo(*line, *options, "--log-json", name + ".jsonl")
            first[name] = self.losses(name + ".jsonl")[0]
        self.assertAlmostEqual(first["ipo"], 25)  # (1 / (2 * 0.1))^2
        self.assertAlmostEqual(first["smooth"], 0.693147, places=5)
        self.assertNotAlmostEqual(first["none"], 0.693147, places=3)

    def test_long_answers_are_cut_or_dropped(self):
        self.pretrained()
        self.write_pairs("train.jsonl", 10)
        with open(self.folder / "train.jsonl", "a", encoding="ascii") as file:
            file.write(json.dumps({"prompt": "p", "chosen": "c" * 100, "rejected": "r"}) + "\n")
            file.write(json.dumps({"prompt": "p" * 100, "chosen": "c", "rejected": "r"}) + "\n")
        line = ["--train-data", "train.jsonl", "--train-iters", 1]
        _, text = self.dpo(*line)
        self.assertIn("12 pairs, 1 dropped; of the answers 1 truncated, 0 too long and 2 without a token that fits", text)
        _, text = self.dpo(*line, "--truncation-mode", "drop")
        self.assertIn("12 pairs, 2 dropped; of the answers 0 truncated, 3 too long and 0 without", text)
        _, text = self.dpo(*line, "--truncation-mode", "keep_end")
        self.assertIn("12 pairs, 0 dropped; of the answers 3 truncated, 0 too long and 0 without", text)

    def test_messages_are_written_by_a_chat_template(self):
        self.pretrained()
        (self.folder / "chat.jinja").write_text(
            "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}")
        records = []
        for word in ("ab", "cd", "ef", "gh"):
            prompt = [{"role": "user", "content": f"say {word}"}]
            answers = [[{"role": "assistant", "content": text}] for text in (word.upper(), "no " + word)]
            records += [{"prompt": prompt, "chosen": answers[0], "rejected": answers[1]},
                        {"chosen": prompt + answers[0], "rejected": prompt + answers[1]}]
        (self.folder / "train.json").write_text(json.dumps(records))
        line = ["--train-data", "train.json", "--train-iters", 12, "--log-json", "log.jsonl"]
        _, text = self.dpo(*line, status=2)
        self.assertIn("chat template", text)
        _, text = self.dpo(*line, "--chat-template", "chat.jinja", "--save", "tuned")
        self.assertIn("8 pairs, 0 dropped", text)
        self.assertGreater(self.values("log.jsonl", "reward_margin")[-1], 0.3)

    def test_mistakes_are_reported(self):
        self.pretrained()
        self.write_pairs("train.jsonl", 4)
        (self.folder / "bad.jsonl").write_text('{"prompt": "p", "chosen": "c"}\n')
        line = ["--train-iters", 1, "--train-data"]
        for arguments, message in (
                ([*line, "bad.jsonl"], 'bad.jsonl, line 1: the record has no field "rejected"'),
                ([*line, "train.jsonl", "--micro-batch-size", 3], "--micro-batch-size 3 is odd"),
                ([*line, "train.jsonl", "--dpo-beta", 0], "--dpo-beta 0"),
                ([*line, "train.jsonl", "--dpo-loss", "ipo", "--dpo-label-smoothing", 0.1], "has no effect with --dpo-loss ipo"),
                ([*line, "train.jsonl", "--dpo-reference", "none", "--dpo-reference-model", "base"],
                 "has no effect with --dpo-reference none"),
                ([*line, "train.jsonl", "--ranks", 2, "--pp", 2, "--schedule", "pipedream"], "does not train a task"),
                ([*line, "train.jsonl", "--packing", "none"], "--packing none has no effect"),
                ([*line, "train.jsonl", "--seq-length", 4], "none of its 4 pairs has two answers")):
            _, text = self.dpo(*arguments, status=2)
            self.assertIn(message, text)
        _, text = self.trifold("finetune", "--task", "dpo", "--load", "base", *TUNE[:2], "--valid-data", "train.jsonl",
                               status=2)
        self.assertIn("--dpo-reference-model", text)
        _, text = self.trifold("finetune", "--task", "lm", "--load", "base", *TUNE, *line, "train.jsonl", "--dpo-beta", 0.2,
                               status=2)
        self.assertIn("--dpo-beta 0.2 has no effect without --task dpo", text)


if __name__ == "__main__":
    unittest.main()
