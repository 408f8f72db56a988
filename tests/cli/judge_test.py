"""evaluate --task: each request as lm-evaluation-harness answers it, the same on every mesh, and lines that are refused."""

import json
import math
import unittest

from judged import POSITIONS, make_model, write_lines
from program import GOLDEN, ProgramTest

ANSWERS = json.loads((GOLDEN / "judged_lm_eval.json").read_text(encoding="utf-8"))


class Judge(ProgramTest):
    def setUp(self):
        super().setUp()
        make_model(self.folder / "model", GOLDEN / "hf_tokenizers" / "gpt2.json")
        self.trifold("convert", "--load", "model", "--save", "out", "--dtype", "f64")

    def evaluate(self, items, *more, load="out", status=0):
        """(requests, result of the log, message)"""
        write_lines(self.folder / "task.jsonl", items)
        for name in ("each.jsonl", "log.jsonl"):
            (self.folder / name).unlink(missing_ok=True)
        out, message = self.trifold("evaluate", "--load", load, "--task", "task.jsonl", "--log-likelihoods", "each.jsonl", "--log-json",
                                    "log.jsonl", "--threads-per-rank", 1, *more, status=status)
        if status:
            return [], {}, message
        return self.records("each.jsonl"), self.records()[-1], out

    def test_questions_equal_lm_eval(self):
        each, _, _ = self.evaluate(ANSWERS["questions"])
        self.assertEqual([(line["item"], line["choice"]) for line in each],
                         [(item, choice) for item, question in enumerate(ANSWERS["questions"]) for choice in range(len(question["choices"]))])
        for line, value, greedy in zip(each, ANSWERS["answers"], ANSWERS["greedy"], strict=True):
            self.assertAlmostEqual(line["log_likelihood"], value, delta=1e-8, msg=line)
            self.assertEqual(line["greedy"], greedy, line)
        self.assertGreater(sum(line["greedy"] for line in each), 3)
        self.assertGreater(max(line["tokens"] for line in each), 5)

    def test_the_type_of_the_computation(self):
        """A model in f32 has in f64 the figures of exact arithmetic, and in f32 and bf16 those of its own type."""
        self.trifold("convert", "--load", "model", "--save", "single")
        worst = {}
        for dtype in ("f64", "f32", "bf16"):
            each, _, _ = self.evaluate(ANSWERS["questions"], "--dtype", dtype, load="single")
            worst[dtype] = max(abs(line["log_likelihood"] - value) for line, value in zip(each, ANSWERS["answers"], strict=True))
        usual, _, _ = self.evaluate(ANSWERS["questions"], load="single")
        single, _, _ = self.evaluate(ANSWERS["questions"], "--dtype", "f32", load="single")
        self.assertEqual(usual, single)
        self.assertLess(worst["f64"], 1e-8)
        self.assertLess(worst["f32"], 2e-5)
        self.assertGreater(worst["bf16"], worst["f32"])
        _, _, message = self.evaluate(ANSWERS["questions"], "--dtype", "f8", status=2)
        self.assertIn("--dtype", message)

    def test_scores_equal_lm_eval(self):
        wanted = ANSWERS["scores_without_delimiters_and_of_texts"]
        each, questions, out = self.evaluate([question for question in ANSWERS["questions"] if "delimiter" not in question])
        self.assertAlmostEqual(questions["acc"], wanted["acc"], delta=1e-12)
        self.assertAlmostEqual(questions["acc_norm"], wanted["acc_norm"], delta=1e-12)
        share, count = wanted["acc"], questions["questions"]
        self.assertAlmostEqual(questions["acc_stderr"], math.sqrt(share * (1 - share) / (count - 1)), delta=1e-12)
        self.assertRegex(out, rf"^accuracy {share:.6f} \(standard error 0\.\d+\)  normalised by length {wanted['acc_norm']:.6f} .*\n$")
        self.assertNotEqual(wanted["acc"], wanted["acc_norm"])
        self.assertGreater(len(each), count)
        each, texts, out = self.evaluate(ANSWERS["texts"])
        for line, value in zip(each, ANSWERS["rolling"], strict=True):
            self.assertAlmostEqual(line["log_likelihood"], value, delta=1e-8)
        self.assertGreater(max(line["tokens"] for line in each), 2 * POSITIONS)
        for name in ("word_perplexity", "byte_perplexity", "bits_per_byte"):
            self.assertAlmostEqual(texts[name] / wanted[name], 1, delta=1e-9)
        self.assertRegex(out, rf"^bits per byte {wanted['bits_per_byte']:.6f}  perplexity of bytes .*\n$")

    def test_every_mesh_gives_the_same(self):
        for items in (ANSWERS["questions"], ANSWERS["texts"]):
            one, result, _ = self.evaluate(items)
            for mesh in (("--ranks", 2, "--micro-batch-size", 1), ("--ranks", 3, "--tp", 3), ("--ranks", 3, "--tp", 3, "--sequence-parallel", "--micro-batch-size", 3),
                         ("--ranks", 2, "--pp", 2), ("--ranks", 2, "--cp", 2), ("--ranks", 4, "--cp", 2, "--pp", 2, "--cp-comm-type", "p2p")):
                each, other, _ = self.evaluate(items, *mesh)
                for a, b in zip(one, each, strict=True):
                    self.assertAlmostEqual(a["log_likelihood"] / b["log_likelihood"], 1, delta=1e-11, msg=mesh)
                    self.assertEqual(a["greedy"], b["greedy"])
                for key, value in result.items():
                    if isinstance(value, float):
                        self.assertAlmostEqual(value / (other[key] or 1), 1 if value else 0, delta=1e-11, msg=(mesh, key))

    def test_fewer_tokens_at_a_time(self):
        """A shorter limit cuts contexts, which changes the figures, and texts, of which it computes every token."""
        whole, _, _ = self.evaluate(ANSWERS["texts"])
        short, _, _ = self.evaluate(ANSWERS["texts"], "--seq-length", 12)
        self.assertEqual([line["tokens"] for line in whole], [line["tokens"] for line in short])
        self.assertTrue(all(a["log_likelihood"] != b["log_likelihood"] for a, b in zip(whole, short) if a["tokens"] > 12))
        _, _, message = self.evaluate(ANSWERS["texts"], "--seq-length", POSITIONS + 1, status=2)
        self.assertIn(f"--seq-length {POSITIONS + 1} is more than the model's {POSITIONS} learned positions", message)

    def test_one_question_has_no_error(self):
        _, result, out = self.evaluate([{"context": "To be", "choices": ["or", "not"], "answer": 1}])
        self.assertIsNone(result["acc_stderr"])
        self.assertNotIn("standard error", out)

    def test_lines_that_are_refused(self):
        good = {"context": "a", "choices": ["b", "c"], "answer": 0}
        for line, why in (({"context": "a"}, 'neither "choices" nor "text"'), ({**good, "answer": 2}, "answer is 2"),
                          ({**good, "answer": "b"}, "answer is \"b\""), ({**good, "choices": ["b"]}, "at least two choices, not 1"),
                          ({**good, "choices": ["b", ""]}, "choices[1] is empty"), ({**good, "choices": ["b", 3]}, "choices[1] is 3"),
                          ({"choices": ["b", "c"], "answer": 0}, "context"), ({"text": ""}, "the text is empty"),
                          ({**good, "text": "x"}, "both a text and a question"), ({"text": "x"}, "the line has a text, but the lines before have questions"),
                          ([1], "is not a JSON object"), ({**good, "context": " \n"}, "the context is white space alone"),
                          ({**good, "choices": ["b", "long " * 60]}, "but the model is given at most 40: shorten it")):
            _, _, message = self.evaluate([good, line], status=2)
            self.assertRegex(message, r"task\.jsonl, line 2")
            self.assertIn(why, message)
        _, _, message = self.evaluate([], status=2)
        self.assertIn("task.jsonl has no lines", message)
        (self.folder / "task.jsonl").write_text('{"context": "a"\n')
        _, message = self.trifold("evaluate", "--load", "out", "--task", "task.jsonl", status=2)
        self.assertIn("task.jsonl, line 1", message)
        self.assertFalse((self.folder / "each.jsonl").exists())

    def test_models_without_continuations(self):
        (self.folder / "text.txt").write_text("cat sun\ndog sea\n\n" * 60)
        self.trifold("pretrain", "--model-type", "bert", "--num-layers", 1, "--hidden-size", 16, "--num-attention-heads", 2, "--seq-length", 16,
                     "--micro-batch-size", 2, "--lr", "1e-3", "--train-iters", 1, "--data-path", "text.txt", "--save", "bert")
        write_lines(self.folder / "task.jsonl", [{"text": "x"}])
        _, message = self.trifold("evaluate", "--load", "bert", "--task", "task.jsonl", status=2)
        self.assertIn("is a BERT", message)


if __name__ == "__main__":
    unittest.main()
