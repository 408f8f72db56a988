"""Lines of Megatron-LM, as people paste them: what becomes of each option, and runs that such lines start."""

import collections
import json
import re
import shlex
import subprocess
import unittest

from program import GOLDEN, TEXT, TRIFOLD, ProgramTest

# A GPT that trains in a moment, in Megatron-LM's spelling.
TINY = ("--use-mcore-models --transformer-impl transformer_engine --num-layers 2 --hidden-size 32 --num-attention-heads 2 "
        "--seq-length 32 --max-position-embeddings 32 --attention-backend auto --micro-batch-size 2 --global-batch-size 4 "
        "--lr 1.5e-4 --min-lr 1.0e-5 --lr-decay-style cosine --weight-decay 0.1 --clip-grad 1.0 --attention-softmax-in-fp32 "
        "--no-masked-softmax-fusion --num-workers 2 --distributed-backend nccl --log-interval 1 --log-throughput "
        "--timing-log-level 2 --wandb-project p --wandb-exp-name e").split()
MOCK = "--mock-data --tokenizer-type NullTokenizer --vocab-size 128".split()

CASES = json.loads((GOLDEN / "megatron_cases.json").read_text(encoding="utf-8"))


def fate(words, surroundings):
    """What the program makes of an option: accepted, noted, or refused with the reason."""
    done = subprocess.run([TRIFOLD, "pretrain", *surroundings, *words, "--print-config"], capture_output=True, text=True, check=False)
    about = [line for line in done.stderr.splitlines() if words[0] in line]
    if done.returncode == 0:
        return "noted" if any(" has no effect" in line for line in about) else "accepted"
    return "refused" if any("is not available in this version of Trifold: " in line for line in about) else done.stderr


def without(name, line):
    """A line without an option that has a value."""
    words = line.split()
    if name in words:
        del words[words.index(name):words.index(name) + 2]
    return " ".join(words)


class Options(unittest.TestCase):
    def test_the_fate_of_each_option(self):
        counts = collections.Counter()
        for case in CASES["options"]:
            words = shlex.split(case["words"])
            around = case.get("surroundings") or without(words[0], CASES["surroundings"])
            with self.subTest(case["words"]):
                self.assertEqual(fate(words, around.split()), case["fate"])
            counts[case["of"], case["fate"]] += 1
        of_examples = sum(number for (source, _), number in counts.items() if source == "examples")
        self.assertGreaterEqual(of_examples, 142)
        self.assertLessEqual(counts["examples", "refused"], 12)
        self.assertLessEqual(counts["docs", "refused"], 19)

    def test_gpt_oss_is_the_rope_of_the_published_model(self):
        done = subprocess.run([TRIFOLD, "pretrain", *CASES["surroundings"].split(), "--position-embedding-type", "rope", "--enable-gpt-oss",
                               "--print-config"], capture_output=True, text=True, check=True)
        for line in ("rope-type = yarn", "rotary-scaling-factor = 32", "original-max-position-embeddings = 4096", "rope-no-truncate = true"):
            self.assertRegex(done.stdout, rf"(?m)^{line} +# command line, as --enable-gpt-oss$")

    def test_whole_lines(self):
        for name, line in CASES["lines"].items():
            with self.subTest(name):
                done = subprocess.run([TRIFOLD, "pretrain", *shlex.split(line["words"]), "--print-config"], capture_output=True,
                                      text=True, check=False)
                problems = re.findall(r"^(?:trifold: |  - )(--[\w-]+).* is not available in this version", done.stderr, re.MULTILINE)
                self.assertEqual(sorted(problems), line["refused"], done.stderr)
                for part in line.get("problems", []):
                    self.assertIn(part, done.stderr)
                if not line["refused"] and "problems" not in line:
                    self.assertEqual(done.returncode, 0, done.stderr)
                self.assertNotIn("unknown option", done.stderr)


# A line that Megatron-LM would train with its own defaults names those that are other ones here.
class Defaults(unittest.TestCase):
    NOTE = "note: Megatron-LM's defaults are other ones than those here: "

    def notes(self, words):
        done = subprocess.run([TRIFOLD, "pretrain", *CASES["surroundings"].split(), *words.split(), "--print-config"],
                              capture_output=True, text=True, check=True)
        return [line for line in done.stderr.splitlines() if line.startswith(self.NOTE)]

    def test_they_are_named(self):
        hidden, attention = "--hidden-dropout 0.1 (here 0)", "--attention-dropout 0.1 (here 0)"
        balance = "--moe-router-load-balancing-type aux_loss (here seq_aux_loss)"
        experts = "--num-workers 2 --num-experts 4 --disable-bias-linear --moe-aux-loss-coeff 0.01"
        for words, names in (("--num-workers 2", [hidden, attention]), ("--use-flash-attn --attention-dropout 0", [hidden]),
                             (experts, [hidden, attention, balance]), ("--num-workers 2 --num-experts 4 --disable-bias-linear", [hidden, attention]),
                             (experts + " --hidden-dropout 0.1 --attention-dropout 0.1", [balance])):
            with self.subTest(words):
                self.assertEqual(self.notes(words), [self.NOTE + ", ".join(names) + "; give them to train as it does"])
        for words in ("--num-workers 2 --hidden-dropout 0 --attention-dropout 0", "--zero-stage 1", "--num-experts 4 --disable-bias-linear --moe-aux-loss-coeff 0.1"):
            with self.subTest(words):
                self.assertEqual(self.notes(words), [])


class Runs(ProgramTest):
    def steps(self, name):
        return [line for line in self.log(name) if "loss" in line]

    def test_mock_data_are_the_same_on_every_mesh(self):
        one = [*TINY, *MOCK, "--train-samples", 8, "--lr-warmup-samples", 4, "--lr-decay-samples", 8, "--eval-interval", 1,
               "--eval-iters", 1]
        _, err = self.trifold("pretrain", *one, "--log-json", "one.jsonl")
        self.assertIn("note: --train-samples 8 is --train-iters 2 with 4 samples a step", err)
        self.trifold("pretrain", *one, "--log-json", "two.jsonl", "--pipeline-model-parallel-size", 2, "--ranks", 2)
        self.trifold("pretrain", *one, "--log-json", "zero.jsonl", "--ranks", 2, "--use-distributed-optimizer", "--overlap-grad-reduce",
                     "--overlap-param-gather")
        losses = [line["loss"] for line in self.steps("one.jsonl")]
        self.assertEqual(len(losses), 2)
        self.assertEqual(losses, [line["loss"] for line in self.steps("two.jsonl")])
        for mine, other in zip(losses, self.steps("zero.jsonl")):
            self.assertAlmostEqual(mine, other["loss"], places=5)
        valid = [line["valid_loss"] for line in self.log("one.jsonl") if "valid_loss" in line]
        self.assertEqual(len(valid), 2)
        self.assertNotIn(valid[0], losses)
        # Another seed, other tokens.
        self.trifold("pretrain", *one, "--seed", 5, "--log-json", "seed.jsonl")
        self.assertNotEqual(losses, [line["loss"] for line in self.steps("seed.jsonl")])
        self.trifold("pretrain", *TINY, "--mock-data", "--train-iters", 1, status=2)

    def test_data_of_parts(self):
        (self.folder / "train.txt").write_text("The quick brown fox jumps over the lazy dog. " * 40)
        (self.folder / "valid.txt").write_text("A different text, which is only measured. " * 20)
        run = [*TINY, "--train-iters", 2, "--train-data-path", "train.txt", "--eval-interval", 1, "--eval-iters", 1]
        self.trifold("pretrain", *run, "--valid-data-path", "valid.txt", "--test-data-path", "none", "--log-json", "a.jsonl")
        self.trifold("pretrain", *run, "--valid-data-path", "train.txt", "--log-json", "b.jsonl")
        self.assertEqual([line["loss"] for line in self.steps("a.jsonl")], [line["loss"] for line in self.steps("b.jsonl")])
        valid = [[line["valid_loss"] for line in self.log(name) if "valid_loss" in line] for name in ("a.jsonl", "b.jsonl")]
        self.assertNotEqual(*valid)
        self.trifold("pretrain", *run, "--valid-data-path", "none.txt", status=2)

    def test_vocabulary_files(self):
        golden = json.loads((GOLDEN / "hf_tokenizers" / "gpt2.json").read_text(encoding="utf-8"))
        model = golden["model"]
        vocabulary = {**model["vocab"], **{token["content"]: token["id"] for token in golden["added_tokens"]}}
        (self.folder / "vocab.json").write_text(json.dumps(vocabulary))
        merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
        (self.folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")
        (self.folder / "t.json").write_text(json.dumps(golden))
        run = [*TINY, "--train-iters", 2, "--split", "90,10,0", "--data-path", TEXT]
        self.trifold("pretrain", *run, "--vocab-file", "vocab.json", "--merge-file", "merges.txt", "--save", "d", "--log-json", "a.jsonl")
        self.trifold("pretrain", *run, "--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", "t.json", "--log-json", "b.jsonl")
        self.assertEqual([line["loss"] for line in self.steps("a.jsonl")], [line["loss"] for line in self.steps("b.jsonl")])
        # The checkpoint names both files, also for a command in another folder.
        other = self.folder / "other"
        other.mkdir()
        done = subprocess.run([TRIFOLD, "generate", "--load", "../d", "--prompt", "To be", "--max-new-tokens", "2"], cwd=other,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.trifold("pretrain", *run, "--vocab-file", "t.json", "--merge-file", "merges.txt", status=2)
        # Messages name own options, and what was given for them.
        for words, why in ((["--vocab-file", "vocab.json"], "(--tokenizer-model was given as --vocab-file)"),
                           (["--tokenizer-type", "BertWordPieceLowerCase", "--vocab-file", "vocab.json", "--merge-file", "merges.txt"], "")):
            _, message = self.trifold("pretrain", *run, *words, status=2)
            self.assertIn(why, message)
        _, message = self.trifold("pretrain", *run, "--tokenizer-model", "vocab.json", status=2)
        self.assertNotIn("given as", message)

    def test_checkpoints_without_the_optimizer(self):
        run = [*TINY, *MOCK, "--lr-decay-iters", 6, "--f64"]
        self.trifold("pretrain", *run, "--train-iters", 6, "--log-json", "whole.jsonl")
        self.trifold("pretrain", *run, "--train-iters", 6, "--exit-interval", 4, "--save", "d", "--save-interval", 2)
        whole = [line["loss"] for line in self.steps("whole.jsonl")]
        self.trifold("pretrain", *run, "--train-iters", 6, "--load", "d", "--ckpt-step", 2, "--log-json", "from2.jsonl")
        self.assertEqual([line["loss"] for line in self.steps("from2.jsonl")], whole[2:])
        _, err = self.trifold("pretrain", *run, "--train-iters", 6, "--load", "d", "--ckpt-step", 3, status=2)
        self.assertIn("d has checkpoints of the steps 4, 2", err)
        # With a new optimizer the first step has the same loss and another update.
        self.trifold("pretrain", *run, "--train-iters", 6, "--load", "d", "--no-load-optim", "--no-load-rng", "--save", "e",
                     "--no-save-optim", "--no-save-rng", "--log-json", "new.jsonl")
        new = self.steps("new.jsonl")
        self.assertEqual([line["step"] for line in new], [5, 6])
        self.assertEqual(new[0]["loss"], whole[4])
        self.assertNotEqual(new[1]["loss"], whole[5])
        # Adam corrects its moments from their own beginning: the first update has the size of a first step.
        self.assertLess(abs(new[1]["loss"] - whole[5]), 0.05)
        _, err = self.trifold("pretrain", *run, "--train-iters", 8, "--load", "e", status=2)
        self.assertIn("--no-load-optim", err)
        self.trifold("pretrain", *run, "--train-iters", 8, "--load", "e", "--no-load-optim")
        sizes = [sum(file.stat().st_size for file in (self.folder / name).rglob("*.h5")) for name in ("d/step_0000000004", "e/step_0000000006")]
        self.assertGreater(sizes[0], 2 * sizes[1])
        # A run that goes on after --no-load-optim is the same as one without the stop.
        self.trifold("pretrain", *run, "--train-iters", 6, "--load", "d", "--no-load-optim", "--exit-interval", 5, "--save", "f")
        self.trifold("pretrain", *run, "--train-iters", 6, "--load", "f", "--save", "f", "--log-json", "go.jsonl")
        self.assertEqual(self.steps("go.jsonl")[0]["loss"], new[1]["loss"])


if __name__ == "__main__":
    unittest.main()
