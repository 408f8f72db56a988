"""--sample-prompt: a text of the model at every evaluation, in the log and in TensorBoard, beside a training whose bits it leaves alone."""

import importlib.util
import unittest

from event_files import Events, skip_without_protozero
from program import TEXT, ProgramTest

RUN = ["--train-iters", 8, "--eval-interval", 4, "--eval-iters", 1, "--lr", 1e-2, "--log-json"]
ASKED = ["--sample-prompt", "KING"]
EXPERTS = ["--num-experts", 4, "--moe-router-topk", 2, "--disable-bias-linear"]


class SamplePrompt(ProgramTest):
    def texts(self, name="log.jsonl"):
        return [(line["step"], line["text"]) for line in self.events(name, "sample")]

    def test_the_text_is_that_of_generate(self):
        self.pretrain(*RUN, "log.jsonl", *ASKED, "--save", "d", "--save-interval", 4)
        texts = self.texts()
        self.assertEqual([step for step, _ in texts], [4, 8])
        for step, text in texts:
            out, _ = self.trifold("generate", "--load", f"d/step_{step:010}", "--prompt", "KING", "--max-new-tokens", 64, "--temperature", 0)
            self.assertEqual(out, text + "\n")
            self.assertGreater(len(text), 20)
        self.assertNotEqual(texts[0][1], texts[1][1])

    def test_the_training_is_the_same(self):
        for index, more in enumerate(([], ["--hidden-dropout", 0.1], ["--ranks", 2, "--zero-stage", 2], ["--ranks", 2, *EXPERTS], ["--bf16"])):
            self.pretrain(*RUN, f"plain{index}.jsonl", *more)
            self.pretrain(*RUN, f"asked{index}.jsonl", *more, *ASKED)
            self.assertEqual(self.losses(f"plain{index}.jsonl"), self.losses(f"asked{index}.jsonl"))
            values = [[line["valid_loss"] for line in self.log(f"{name}{index}.jsonl") if "valid_loss" in line] for name in ("plain", "asked")]
            self.assertEqual(values[0], values[1])
            self.assertEqual(len(self.texts(f"asked{index}.jsonl")), 2)
            self.assertEqual(self.texts(f"plain{index}.jsonl"), [])

    def test_lines_show_it_safely(self):
        _, message = self.pretrain(*RUN, "log.jsonl", "--sample-prompt", "a\tb\x1b[31m")
        self.assertRegex(message, r"step +4/8  sample: a\\tb\\x1b\[31m")
        self.assertTrue(self.texts()[0][1].startswith("a\tb\x1b[31m"))

    def test_an_empty_prompt_begins_a_text(self):
        self.pretrain(*RUN, "log.jsonl", "--sample-prompt", "")
        self.assertEqual(len(self.texts()), 2)

    def test_event_files_have_it(self):
        skip_without_protozero(self)
        self.pretrain(*RUN, "log.jsonl", *ASKED, "--tensorboard-dir", "tb")
        path, = (self.folder / "tb").iterdir()
        self.assertEqual(Events(path).texts["sample"], self.texts())

    @unittest.skipUnless(importlib.util.find_spec("tensorboard"), "TensorBoard is not installed: pip install tensorboard")
    def test_tensorboard_reads_it(self):
        skip_without_protozero(self)
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        self.pretrain(*RUN, "log.jsonl", *ASKED, "--tensorboard-dir", "tb")
        loaded = EventAccumulator(str(self.folder / "tb"), size_guidance={"tensors": 0})
        loaded.Reload()
        read = [(event.step, event.tensor_proto.string_val[0].decode()) for event in loaded.Tensors("sample")]
        self.assertEqual(read, self.texts())

    def test_where_it_is_not_possible(self):
        for words, why in ((["--ranks", 2, "--tp", 2], "--tensor-model-parallel-size 2"), (["--ranks", 2, "--pp", 2], "--pipeline-model-parallel-size 2"),
                           (["--ranks", 2, "--cp", 2], "--context-parallel-size 2"), (["--ranks", 2, "--zero-stage", 3], "--zero-stage 3"),
                           (["--ranks", 2, "--ep", 2, *EXPERTS], "--expert-model-parallel-size 2"),
                           (["--ranks", 2, "--etp", 2, *EXPERTS], "--expert-tensor-parallel-size 2")):
            _, message = self.pretrain(*RUN, "log.jsonl", *ASKED, *words, status=2)
            self.assertIn(f"--sample-prompt KING is not possible with {why}", message)
        _, message = self.pretrain("--train-iters", 2, *ASKED, status=2)
        self.assertIn("--sample-prompt KING has no effect without --eval-interval", message)
        self.trifold("tokenize", "--input", TEXT, "--output-prefix", "tokens", "--tokenizer-type", "byte")
        _, message = self.pretrain(*RUN, "log.jsonl", *ASKED, "--vocab-size", 256, data="tokens_text_document", status=2)
        self.assertIn("--sample-prompt: the tokens of these data have no texts; give --tokenizer-type", message)
        self.assertFalse((self.folder / "log.jsonl").exists())


if __name__ == "__main__":
    unittest.main()
