"""A BERT finetuned from the command line: it learns on any mesh, resumes where it stopped, and predicts."""

import json
import random
import unittest

from program import ProgramTest

MODEL = ("--model-type bert --num-layers 2 --hidden-size 32 --num-attention-heads 2 --seq-length 32 "
         "--max-position-embeddings 64 --micro-batch-size 8 --lr 3e-3 --threads-per-rank 1").split()
TUNE = "--micro-batch-size 8 --lr-decay-style constant --threads-per-rank 1".split()


class Finetune(ProgramTest):
    def setUp(self):
        super().setUp()
        self.random = random.Random(3)

    def words(self, count):
        return " ".join(self.random.choice(("cat", "dog", "sun", "sea")) for _ in range(count))

    def pretrained(self, *arguments):
        text = "\n\n".join("\n".join(self.words(4) for _ in range(6)) for _ in range(12))
        (self.folder / "text").write_text(text)
        self.trifold("pretrain", *MODEL, "--data-path", "text", "--train-iters", 2, "--save", "bert", *arguments)

    def write_labels(self, name, count):
        """A sign anywhere in either text determines the class."""
        lines = ["label\ttext\ttext_b"]
        for _ in range(count):
            label = self.random.choice(("plus", "star", "none"))
            words = self.words(4).split()
            words.insert(self.random.randrange(4), {"plus": "+", "star": "*", "none": "="}[label])
            lines.append(f"{label}\t{' '.join(words[:3])}\t{' '.join(words[3:])}")
        (self.folder / name).write_text("\n".join(lines) + "\n")

    def classify(self, *arguments, **options):
        return self.trifold("finetune", "--task", "classify", *TUNE, "--lr", "1e-3", *arguments, **options)

    def ask(self, *arguments, **options):
        """Without training."""
        return self.trifold("finetune", "--task", "classify", *TUNE[:2], *TUNE[4:], *arguments, **options)

    def scores(self, name, key):
        return [line[key] for line in self.log(name) if key in line]

    def test_classes_are_learned_alike_on_every_mesh(self):
        self.pretrained()
        self.write_labels("train.tsv", 300)
        self.write_labels("dev.tsv", 61)
        files = ["--load", "bert", "--train-data", "train.tsv", "--valid-data", "dev.tsv", "--global-batch-size", 16,
                 "--train-iters", 120]
        meshes = {"one": [], "many": ["--ranks", 4, "--tp", 2, "--sequence-parallel", "--zero-stage", 1],
                  "row": ["--ranks", 2, "--pp", 2],
                  "context": ["--ranks", 4, "--cp", 2, "--tp", 2, "--sequence-parallel", "--zero-stage", 2]}
        for name, mesh in meshes.items():
            steps = [] if name == "one" else ["--exit-interval", 10, "--eval-interval", 10]
            self.classify(*files, *steps, *mesh, "--log-json", name + ".jsonl", "--save", name, "--predictions",
                          name + ".out")
        losses = self.losses("one.jsonl")
        for name in ("many", "row", "context"):
            for a, b in zip(losses, self.losses(name + ".jsonl")):
                self.assertLess(abs(a - b), 2e-4 * a + 1e-5, name)
        self.assertEqual(losses[:10], self.losses("row.jsonl"))
        self.assertGreater(self.scores("one.jsonl", "accuracy")[-1], 0.95)
        # Evaluated again without training on another mesh: the same answers.
        labels = [json.loads(line)["label"] for line in (self.folder / "one.out").read_text().splitlines()]
        self.assertEqual(len(labels), 61)
        for mesh in (["--ranks", 4, "--tp", 2, "--sequence-parallel"], ["--ranks", 4, "--cp", 4], meshes["row"], []):
            _, text = self.ask("--load", "one", "--valid-data", "dev.tsv", "--predictions", "again", *mesh)
            self.assertIn("accuracy", text)
            again = [json.loads(line)["label"] for line in (self.folder / "again").read_text().splitlines()]
            self.assertEqual(labels, again)
        self.assertRegex(text, r"step +120  validation loss .* \(61 samples in ")

    def test_a_stopped_run_goes_on_to_the_last_bit(self):
        self.pretrained()
        self.write_labels("train.tsv", 40)
        line = ["--load", "bert", "--train-data", "train.tsv", "--train-epochs", 3, "--hidden-dropout", 0.1]
        self.classify(*line, "--log-json", "whole.jsonl")
        self.assertEqual(len(self.losses("whole.jsonl")), 15)
        for _ in range(3):
            self.classify(*line, "--save", "run", "--auto-resume", "--exit-interval", 5, "--log-json", "parts.jsonl")
        self.assertEqual(self.losses("whole.jsonl"), self.losses("parts.jsonl"))
        self.write_labels("train.tsv", 40)
        _, text = self.classify("--load", "bert", "--train-data", "train.tsv", "--train-epochs", 4, "--hidden-dropout", 0.1, "--save", "run",
                                "--auto-resume", status=2)
        self.assertIn("the training data differ from those that run/step_0000000015 was trained on", text)

    def write_squad(self, name, count):
        """The answer is the word between two signs; where there are none, there is no answer."""
        paragraphs = []
        for i in range(count):
            words = self.words(7).split()
            at, possible = self.random.randrange(1, 6), i % 3 > 0
            answer, start = words[at], len(" ".join(words[:at])) + 2
            if possible:
                words[at] = f"<{answer}>"
            question = {"id": f"q{i}", "question": "?", "is_impossible": not possible,
                        "answers": [{"text": answer, "answer_start": start}] if possible else []}
            paragraphs.append({"context": " ".join(words), "qas": [question]})
        (self.folder / name).write_text(json.dumps({"version": "v2.0", "data": [{"paragraphs": paragraphs}]}))

    def test_answers_are_found(self):
        self.pretrained("--bert-no-binary-head")  # without a pooler, which is not needed
        self.write_squad("train.json", 300)
        self.write_squad("dev.json", 60)
        _, text = self.trifold(
            "finetune", "--task", "squad", "--load", "bert", *TUNE, "--lr", "5e-3", "--global-batch-size", 16, "--train-data",
            "train.json", "--valid-data", "dev.json", "--train-iters", 250, "--ranks", 2, "--doc-stride", 12,
            "--predictions", "out.json", "--log-json", "log.jsonl", "--save", "tuned")
        self.assertIn("exact_match", text)
        predictions = json.loads((self.folder / "out.json").read_text())
        self.assertEqual(predictions.pop("made_by"), "trifold finetune")
        self.assertEqual(len(predictions), 60)
        self.assertGreater(self.scores("log.jsonl", "f1")[-1], 80)
        self.assertGreater(self.scores("log.jsonl", "no_answer_f1")[-1], 50)
        right = {q["id"]: [a["text"] for a in q["answers"]] or [""]
                 for p in json.loads((self.folder / "dev.json").read_text())["data"][0]["paragraphs"] for q in p["qas"]}
        exact = 100 * sum(predictions[name] in texts for name, texts in right.items()) / len(right)
        self.assertLessEqual(exact, self.scores("log.jsonl", "exact_match")[-1] + 1e-9)
        _, text = self.ask("--load", "tuned", "--valid-data", "x.tsv", status=2)
        self.assertIn("was tuned for a task other than --task classify", text)
        _, text = self.trifold("evaluate", "--load", "tuned", "--data-path", "text", status=2)
        self.assertIn("trifold finetune --load tuned --valid-data FILE", text)

    def test_answers_are_found_alike_on_context_ranks(self):
        self.pretrained("--bert-no-binary-head")
        self.write_squad("train.json", 60)
        self.write_squad("dev.json", 20)
        squad = ["finetune", "--task", "squad", *TUNE[:2], *TUNE[4:], "--valid-data", "dev.json", "--doc-stride", 12]
        train = ["--load", "bert", "--lr-decay-style", "constant", "--lr", "5e-3", "--global-batch-size", 16,
                 "--train-data", "train.json", "--train-iters", 12]
        meshes = {"one": [], "gather": ["--ranks", 2, "--cp", 2],
                  "ring": ["--ranks", 4, "--cp", 4, "--cp-comm-type", "p2p"],
                  "heads": ["--ranks", 8, "--cp", 2, "--tp", 1, "--pp", 2, "--dp", 2, "--cp-comm-type", "a2a"],
                  "tensor": ["--ranks", 4, "--cp", 2, "--tp", 2, "--sequence-parallel"]}
        for name, mesh in meshes.items():
            zero = ["--zero-stage", 3] if name == "ring" else []
            self.trifold(*squad, *train, *mesh, *zero, "--log-json", name + ".jsonl", "--save", name)
            for a, b in zip(self.losses("one.jsonl"), self.losses(name + ".jsonl"), strict=True):
                self.assertLess(abs(a - b), 1e-4 * a, name)
        for mesh in meshes.values():
            self.trifold(*squad, "--load", "one", "--predictions", "out.json", *mesh)
            answers = json.loads((self.folder / "out.json").read_text())
            if mesh == []:
                expected = answers
            self.assertEqual(answers, expected)

    def test_mistakes_are_reported(self):
        self.pretrained()
        self.write_labels("train.tsv", 8)
        for arguments, part in (
                (["--load", "bert"], "give --train-data FILE to tune the model"),
                (["--load", "bert", "--valid-data", "train.tsv"], "--lr has no effect without --train-data"),
                (["--load", "bert", "--train-data", "nothing.tsv", "--train-iters", 3], "nothing.tsv cannot be opened"),
                (["--load", "bert", "--train-data", "train.tsv"], "--train-iters"),
                (["--load", "bert", "--train-data", "train.tsv", "--train-iters", 3, "--doc-stride", 5],
                 "--doc-stride 5 has no effect without --task squad"),
                (["--load", "bert", "--train-data", "train.tsv", "--train-iters", 3, "--seq-length", 65],
                 "--seq-length 65 is more than the model's 64 positions"),
                (["--train-data", "train.tsv", "--train-iters", 3], "--load needs a value")):
            _, text = self.classify(*arguments, status=2)
            self.assertIn(part, text)
        _, text = self.ask("--load", "bert", "--valid-data", "train.tsv", status=2)
        self.assertIn("was not tuned for a task: give --train-data", text)
        _, text = self.ask("--load", "bert", "--valid-data", "train.tsv", "--tokenizer-model", "moved.model", status=2)
        self.assertIn("--tokenizer-model moved.model has no effect without --tokenizer-type sentencepiece or huggingface or gpt2-bpe", text)
        unused = {"--optimizer": "lamb", "--weight-decay": 0.5, "--hidden-dropout": 0.5, "--seed": 3, "--recompute-granularity": "full"}
        _, text = self.ask("--load", "bert", "--valid-data", "train.tsv", *(word for pair in unused.items() for word in pair),
                           status=2)
        for option in unused:
            self.assertIn(f"{option} has no effect without --train-data FILE", text)
        for line, part in (('["a"]', "is not a JSON object such as"), ("{", "not JSON"),
                           ('{"label": "x"}', 'the object has no field "text"'),
                           ('{"text": "a"}', 'the object has no field "label"'),
                           ('{"text": "a", "text_b": null, "label": 1}', 'the field "text_b" is not a string')):
            (self.folder / "odd.jsonl").write_text(line + "\n")
            _, text = self.classify("--load", "bert", "--train-data", "odd.jsonl", "--train-iters", 3, status=2)
            self.assertIn("odd.jsonl, line 1: " + part, text)
            self.assertEqual("a table's name ends in .tsv" in text, "JSON" in part)
        (self.folder / "latin.tsv").write_bytes(b"label\ttext\ncaf\xe9\tx\n")
        _, text = self.classify("--load", "bert", "--train-data", "latin.tsv", "--train-iters", 3, status=2)
        self.assertIn("latin.tsv, line 2: byte 3 is not UTF-8", text)
        self.assertFalse((self.folder / "tuned").exists())


if __name__ == "__main__":
    unittest.main()
