"""generate: keys and values that are kept change no text; stop texts; conversations over stdin and on a terminal."""

import json
import os
import pty
import random
import select
import shutil
import signal
import subprocess
import time
import unittest

from judged import make_model
from program import GOLDEN, TRIFOLD, ProgramTest

TURNS = [("hi", "hello there."), ("count", "one two three four."), ("bye", "see you soon.")]
TEMPLATE = ("{% for message in messages %}{% if message['role'] == 'system' %}S: {% elif message['role'] == 'user' %}U: {% else %}A: {% endif %}"
            "{{ message['content'] }}\n{% endfor %}{% if add_generation_prompt %}A: {% endif %}")
# A template whose answers end in a text that the model never writes.
ENDLESS = TEMPLATE.replace("{{ message['content'] }}", "{{ message['content'] + ('@@@' if message['role'] == 'assistant' else '') }}")
SHAPE = {"gpt2": [], "llama": ["--position-embedding-type", "rope", "--normalization", "RMSNorm", "--swiglu", "--disable-bias-linear",
                               "--group-query-attention", "--num-query-groups", 1, "--untie-embeddings-and-output-weights"]}


class Terminal:
    """The program on a terminal of its own."""

    def __init__(self, test, *arguments):
        self.test = test
        self.side, other = pty.openpty()
        self.process = subprocess.Popen([TRIFOLD, *map(str, arguments)], cwd=test.folder, stdin=other, stdout=other, stderr=other,
                                        start_new_session=True, preexec_fn=self.take)
        os.close(other)
        self.shown = ""
        test.addCleanup(os.close, self.side)
        test.addCleanup(self.process.wait)
        test.addCleanup(self.process.kill)

    @staticmethod
    def take():
        """Makes the terminal the process's own, so that Ctrl-C reaches it."""
        import fcntl
        import termios
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def write(self, text):
        os.write(self.side, text.encode())

    def read_until(self, text, seconds=60):
        """What is shown up to a text, which is taken away."""
        end = time.monotonic() + seconds
        while text not in self.shown:
            ready, _, _ = select.select([self.side], [], [], max(0, end - time.monotonic()))
            self.test.assertTrue(ready, f"{text!r} was not shown, but {self.shown[-500:]!r}")
            try:
                self.shown += os.read(self.side, 4096).decode(errors="replace")
            except OSError:  # the other side was closed
                self.test.fail(f"ended without {text!r}: {self.shown[-500:]!r}")
        before, _, self.shown = self.shown.partition(text)
        return before.replace("\r\n", "\n")


class Talk(ProgramTest):
    @classmethod
    def setUpClass(cls):
        """Trains a GPT-2 and a Llama on a conversation until they know it."""
        cls.made = ProgramTest()
        cls.made.setUp()
        cls.addClassCleanup(cls.made.doCleanups)
        draw = random.Random(2)  # in any order, so that an answer follows from what is asked
        (cls.made.folder / "chats.txt").write_text("".join("U: {}\nA: {}\n".format(*draw.choice(TURNS)) for _ in range(1500)))
        for name, more in SHAPE.items():
            cls.made.pretrain("--hidden-size", 64, "--num-attention-heads", 4, "--seq-length", 96, "--micro-batch-size", 8, "--global-batch-size", 8,
                              "--train-iters", 300, "--lr", 4e-3, "--lr-decay-style", "linear", "--split", "100,0,0", "--save", name, *more, data="chats.txt")

    def setUp(self):
        super().setUp()
        for name in SHAPE:
            os.symlink(self.made.folder / name, self.folder / name)
        (self.folder / "plain.jinja").write_text(TEMPLATE)
        (self.folder / "endless.jinja").write_text(ENDLESS)

    def generate(self, *arguments, **more):
        return self.trifold("generate", *arguments, "--threads-per-rank", 1, **more)[0]

    def talk(self, text, *arguments, model="gpt2", template="plain.jinja", status=0):
        done = subprocess.run([TRIFOLD, "generate", "--load", model, "--chat", "--chat-template", template, "--threads-per-rank", "1",
                               *map(str, arguments)], cwd=self.folder, input=text, capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout, done.stderr

    def test_a_cache_changes_no_text(self):
        for model in SHAPE:
            for more in (["--temperature", 0], ["--temperature", 0.9, "--top-k", 20, "--seed", 5], ["--min-p", 0.02, "--repetition-penalty", 1.3, "--seed", 6],
                         ["--num-samples", 3]):
                words = ["--load", model, "--prompt", "U: hi\nA:", "--max-new-tokens", 150, *more]  # beyond the window of 96
                self.assertEqual(self.generate(*words), self.generate(*words, "--no-key-value-cache"))

    def test_tensor_ranks_write_the_same(self):
        words = ["--prompt", "U: hi\nA:", "--max-new-tokens", 40, "--temperature", 0]
        self.assertEqual(self.generate("--load", "gpt2", *words), self.generate("--load", "gpt2", *words, "--tensor-model-parallel-size", 2))
        _, message = self.trifold("generate", "--load", "gpt2", "--tensor-model-parallel-size", 3, status=2)
        self.assertIn("--tensor-model-parallel-size 3", message)

    def test_texts_that_end_a_continuation(self):
        words = ["--load", "gpt2", "--prompt", "U: count\nA:", "--temperature", 0, "--max-new-tokens", 60]
        self.assertTrue(self.generate(*words).startswith("U: count\nA: one two three four.\nU: "), self.generate(*words))
        self.assertEqual(self.generate(*words, "--stop", "\n"), "U: count\nA: one two three four.\n")
        _, text = self.trifold("generate", "--load", "x", "--stop", "", status=2)
        self.assertIn('--stop "" would end a continuation before it begins', text)
        self.assertEqual(self.generate(*words, "--stop", "never", "three f", "four"), "U: count\nA: one two \n")

    def test_lines_of_a_conversation(self):
        for model in SHAPE:
            out, err = self.talk("hi\ncount\nbye\n", "--temperature", 0, model=model)
            self.assertEqual(out, "hello there.\none two three four.\nsee you soon.\n")
            self.assertEqual(err, "")
        self.assertEqual(self.talk("hi\n/reset\nbye\n/exit\nhi\n", "--temperature", 0, "--system", "hi")[0].splitlines()[1:], ["see you soon."])

    def test_the_cache_of_a_conversation_changes_no_text(self):
        words = ["--temperature", 1.2, "--seed", 9, "--max-new-tokens", 25]
        cached, _ = self.talk("hi\nbye\ncount\n", *words)
        self.assertEqual(cached, self.talk("hi\nbye\ncount\n", *words, "--no-key-value-cache")[0])

    def test_a_conversation_longer_than_the_window(self):
        out, err = self.talk("hi\ncount\nbye\n" * 3, "--temperature", 0)
        self.assertEqual(len(out.splitlines()), 9)
        self.assertEqual(out.splitlines()[:3], [answer for _, answer in TURNS])
        self.assertIn("oldest messages were left out", err)
        _, err = self.talk("x" * 200 + "\n", status=2)
        self.assertIn("the model takes at most 95", err)

    def test_what_is_not_possible(self):
        for more, why in ((["--prompt", "x"], "--prompt"), (["--num-samples", 2], "--num-samples")):
            _, err = self.talk("hi\n", *more, status=2)
            self.assertIn(why, err)
        _, err = self.trifold("generate", "--load", "gpt2", "--chat", status=2)
        self.assertIn("chat template", err)
        _, err = self.trifold("generate", "--load", "gpt2", "--system", "x", status=2)
        self.assertIn("--chat", err)
        for more in (["--min-p", 1.5], ["--repetition-penalty", 0], ["--min-p", -1]):
            self.trifold("generate", "--load", "gpt2", *more, status=2)

    def test_end_tokens_of_the_model(self):
        """eos_token_id of generation_config.json, from a folder of Hugging Face and from a checkpoint made of it."""
        make_model(self.folder / "hf", GOLDEN / "hf_tokenizers" / "gpt2.json")
        words = ["--prompt", "To be", "--temperature", 0, "--max-new-tokens", 12]
        whole = self.generate("--load", "hf", *words)
        vocabulary = json.loads((GOLDEN / "hf_tokenizers" / "gpt2.json").read_text(encoding="utf-8"))["model"]["vocab"]
        tried = 0
        for token, number in vocabulary.items():
            if not token.isalpha() or len(token) < 2 or token not in whole[5:]:
                continue
            (self.folder / "hf" / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, number]}))
            ended = self.generate("--load", "hf", *words)
            self.assertTrue(whole.startswith(ended[:-1]))
            shutil.rmtree(self.folder / "out", ignore_errors=True)
            self.trifold("convert", "--load", "hf", "--save", "out")
            self.assertEqual(self.generate("--load", "out", *words), ended)
            tried += len(ended) < len(whole)
        self.assertGreater(tried, 0)
        for wrong in ([-1], 600, "x", [[]]):
            (self.folder / "hf" / "generation_config.json").write_text(json.dumps({"eos_token_id": wrong}))
            _, err = self.trifold("generate", "--load", "hf", *words, status=2)
            self.assertIn("eos_token_id", err)

    def test_a_tuned_model(self):
        """finetune keeps the chat template with the checkpoint, so that a conversation needs no option for it."""
        with open(self.folder / "chats.jsonl", "w", encoding="utf-8") as file:
            for asked, answer in TURNS * 8:
                file.write(json.dumps({"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": answer.upper()}]}) + "\n")
        self.trifold("finetune", "--task", "chat", "--load", "llama", "--chat-template", "plain.jinja", "--train-data", "chats.jsonl", "--micro-batch-size", 4,
                     "--global-batch-size", 4, "--train-iters", 60, "--lr", 3e-3, "--threads-per-rank", 1, "--save", "tuned")
        done = subprocess.run([TRIFOLD, "generate", "--load", "tuned", "--chat", "--temperature", "0", "--max-new-tokens", "60", "--threads-per-rank", "1"],
                              cwd=self.folder, input="bye\n", capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, "SEE YOU SOON.\n"), done.stderr)

    def test_a_terminal(self):
        terminal = Terminal(self, "generate", "--load", "gpt2", "--chat", "--chat-template", "plain.jinja", "--temperature", 0, "--threads-per-rank", 1)
        greeting = terminal.read_until("> ")
        self.assertIn("of keys and values for 96 tokens", greeting)
        self.assertIn("/exit", greeting)
        terminal.write("hi\n")
        self.assertEqual(terminal.read_until("> "), "hi\nhello there.\n")
        terminal.write("\x03")  # Ctrl-C at the prompt ends nothing
        self.assertIn("Ctrl-D", terminal.read_until("> "))
        terminal.write("/reset\n")
        terminal.read_until("> ")
        terminal.write("co\\\n")  # a line that goes on
        terminal.read_until(". ")
        terminal.write("unt\n")
        terminal.read_until("> ")
        terminal.write("\x04")
        self.assertEqual(terminal.process.wait(timeout=20), 0)

    def test_an_interrupted_answer(self):
        terminal = Terminal(self, "generate", "--load", "gpt2", "--chat", "--chat-template", "endless.jinja", "--temperature", 0, "--threads-per-rank", 1,
                            "--max-new-tokens", 100000000)
        terminal.read_until("> ")
        terminal.write("hi\n")
        terminal.read_until("hello there.")
        time.sleep(0.3)
        terminal.write("\x03")
        terminal.read_until("\n> ", seconds=20)
        self.assertIsNone(terminal.process.poll())
        terminal.write("/exit\n")
        self.assertEqual(terminal.process.wait(timeout=20), 0)

    def test_a_signal_ends_a_conversation_of_lines(self):
        with subprocess.Popen([TRIFOLD, "generate", "--load", "gpt2", "--chat", "--chat-template", "plain.jinja"], cwd=self.folder, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            time.sleep(1)
            process.send_signal(signal.SIGINT)
            self.assertNotEqual(process.wait(timeout=20), 0)


if __name__ == "__main__":
    unittest.main()
