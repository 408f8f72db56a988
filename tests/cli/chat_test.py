"""A GPT finetuned on conversations and on prompts: it learns the answers alone, on any mesh, and resumes where it stopped."""

import json
import random
import unittest

from program import GOLDEN, ProgramTest

MODEL = ("--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 240 --position-embedding-type rope "
         "--micro-batch-size 8 --lr 3e-3 --threads-per-rank 1 --tokenizer-type byte").split()
TUNE = "--micro-batch-size 2 --lr 5e-3 --lr-decay-style constant --threads-per-rank 1".split()
TEMPLATE = """\
{% for message in messages %}
<|{{ message.role }}|>{{ message.content }}<|end|>
{% endfor %}
{% if add_generation_prompt %}<|assistant|>{% endif %}
"""
TAGGED = """\
{% for message in messages %}
<|{{ message.role }}|>{% if message.role == 'assistant' %}{% generation %}{{ message.content }}<|end|>{% endgeneration %}
{% else %}{{ message.content }}<|end|>{% endif %}{{ '\\n' }}
{%- endfor %}
"""
ANIMALS = {"cat": "meow", "dog": "woof", "cow": "moo", "duck": "quack"}


class Chat(ProgramTest):
    def setUp(self):
        super().setUp()
        self.random = random.Random(5)
        (self.folder / "chat.jinja").write_text(TEMPLATE)
        (self.folder / "tagged.jinja").write_text(TAGGED)

    def pretrained(self, *arguments):
        words = [self.random.choice(sorted(ANIMALS)) for _ in range(3000)]
        (self.folder / "text").write_text(" ".join(words))
        self.trifold("pretrain", *MODEL, "--data-path", "text", "--split", "1,0,0", "--train-iters", 2, "--save", "base", *arguments)

    def conversation(self, turns):
        messages = []
        for _ in range(turns):
            animal = self.random.choice(sorted(ANIMALS))
            messages += [{"role": "user", "content": f"{self.random.randrange(10**6)} {animal}?"},
                         {"role": "assistant", "content": ANIMALS[animal]}]
        return {"messages": messages}

    def write_chats(self, name, count):
        self.write_lines(name, [self.conversation(self.random.randint(1, 2)) for _ in range(count)])

    def write_lines(self, name, records):
        (self.folder / name).write_text("".join(json.dumps(record) + "\n" for record in records))

    def chat(self, *arguments, **options):
        template = [] if "--chat-template" in arguments else ["--chat-template", "chat.jinja"]
        return self.trifold("finetune", "--task", "chat", "--load", "base", *template, *TUNE, *arguments, **options)

    def valid(self, name):
        return [line["valid_loss"] for line in self.log(name) if "valid_loss" in line]

    def test_answers_are_learned_alike_on_every_mesh(self):
        self.pretrained()
        self.write_chats("train.jsonl", 240)
        self.write_chats("dev.jsonl", 24)
        files = ["--train-data", "train.jsonl", "--valid-data", "dev.jsonl", "--global-batch-size", 8, "--train-iters", 60]
        _, text = self.chat(*files, "--log-json", "one.jsonl", "--save", "one", "--eval-interval", 20)
        self.assertRegex(text, r"data +train.jsonl: 240 conversations, 0 truncated, 0 dropped \(0 without an answer that fits\); "
                               r"\d+ tokens, \d+ of answers, in \d+ samples of 240 \([89]\d\.\d% full\)")
        # Half the bytes of a conversation are random digits: only the answers can be learned so well.
        self.assertLess(self.valid("one.jsonl")[-1], 0.1)
        self.assertRegex(text, r"step +60/60  validation loss 0\.0\d+  \(\d+ tokens")
        meshes = {"many": ["--ranks", 4, "--tp", 2, "--sequence-parallel", "--zero-stage", 1],
                  "row": ["--ranks", 2, "--pp", 2],
                  "context": ["--ranks", 4, "--cp", 2, "--zero-stage", 3]}
        losses = self.losses("one.jsonl")
        for name, mesh in meshes.items():
            self.chat(*files, *mesh, "--exit-interval", 8, "--log-json", name + ".jsonl")
            for a, b in zip(losses, self.losses(name + ".jsonl")):
                self.assertLess(abs(a - b), 2e-4 * a + 1e-5, name)
        self.assertEqual(losses[:8], self.losses("row.jsonl"))
        # Evaluated again without training, on another mesh; the checkpoint has the template.
        for mesh in ([], ["--ranks", 2, "--tp", 2]):
            _, text = self.trifold("finetune", "--task", "chat", "--load", "one", "--valid-data", "dev.jsonl",
                                   "--micro-batch-size", 4, "--log-json", "again.jsonl", *mesh)
            self.assertLess(abs(self.valid("again.jsonl")[-1] - self.valid("one.jsonl")[-1]), 1e-5)
        # Its export has the template, and needs the checkpoint no more.
        self.trifold("convert", "--load", "one", "--save", "exported")
        (self.folder / "one").rename(self.folder / "moved")
        self.assertNotIn("step_", (self.folder / "exported" / "config.json").read_text())
        self.trifold("finetune", "--task", "chat", "--load", "exported", "--valid-data", "dev.jsonl", "--micro-batch-size", 4,
                     "--log-json", "exported.jsonl")
        self.assertLess(abs(self.valid("exported.jsonl")[-1] - self.valid("one.jsonl")[-1]), 1e-5)
        # The model answers.
        out, _ = self.trifold("generate", "--load", "exported", "--prompt", "<|user|>123 duck?<|end|>\n<|assistant|>", "--temperature", 0,
                              "--max-new-tokens", 12)
        self.assertIn("quack<|end|>", out)

    def test_a_stopped_run_goes_on_to_the_last_bit_with_the_template(self):
        self.pretrained()
        self.write_chats("train.jsonl", 60)
        self.write_chats("dev.jsonl", 10)
        line = ["--train-data", "train.jsonl", "--valid-data", "dev.jsonl", "--eval-interval", 5, "--train-epochs", 3,
                "--hidden-dropout", 0.1]
        self.chat(*line, "--log-json", "whole.jsonl")
        steps = len(self.losses("whole.jsonl"))
        self.assertGreater(steps, 12)
        for part in range(steps // 7 + 1):
            # The file is only needed at the beginning: checkpoints have it.
            template = ["--chat-template", "chat.jinja"] if part == 0 else []
            self.trifold("finetune", "--task", "chat", "--load", "base", *TUNE, *template, *line, "--save", "run", "--auto-resume",
                         "--exit-interval", 7, "--save-retain", 2, "--log-json", "parts.jsonl")
            (self.folder / "chat.jinja").unlink(missing_ok=True)
        self.assertEqual(self.losses("whole.jsonl"), self.losses("parts.jsonl"))
        self.assertEqual(self.valid("whole.jsonl"), self.valid("parts.jsonl"))
        (last,) = [path for path in (self.folder / "run").glob("step_*") if path.name.endswith(f"{steps:04}")]
        self.assertEqual((last / "chat_template.jinja").read_text(), TEMPLATE)
        _, text = self.trifold("finetune", "--task", "chat", "--load", "base", *TUNE, *line[:-4], "--hidden-dropout", 0.1, "--train-epochs", 4,
                               "--save", "run", "--auto-resume", "--packing", "none", status=2)
        self.assertIn("the checkpoint was trained on 60 conversations in", text)

    def test_a_hugging_face_folder_brings_its_template(self):
        (self.folder / "text").write_text("the cat says meow\n" * 400)
        tokenizer = GOLDEN / "hf_tokenizers" / "gpt2.json"
        model = [*MODEL[:-2], "--tokenizer-type", "huggingface", "--tokenizer-model", tokenizer, "--swiglu", "--normalization",
                 "RMSNorm", "--disable-bias-linear", "--untie-embeddings-and-output-weights"]
        self.trifold("pretrain", *model, "--data-path", "text", "--split", "1,0,0", "--train-iters", 2, "--save", "base")
        self.trifold("convert", "--load", "base", "--save", "hf")
        (self.folder / "hf" / "tokenizer_config.json").write_text(json.dumps({
            "bos_token": "<|endoftext|>", "eos_token": {"content": "<|endoftext|>"},
            "chat_template": [{"name": "default", "template": "{{ bos_token }}" + TEMPLATE},
                              {"name": "dated", "template": "{{ strftime_now('%d.%m.%Y') }}" + TEMPLATE}]}))
        self.write_chats("train.jsonl", 30)
        line = ["finetune", "--task", "chat", "--load", "hf", *TUNE, "--train-data", "train.jsonl", "--train-iters", 4]
        self.trifold(*line, "--save", "tuned", "--log-json", "own.jsonl", "--save-hf", "models", "--save-hf-interval", 4)
        for folder in ("tuned/step_0000000004", "models/hf_iter_0000004"):
            self.assertEqual((self.folder / folder / "chat_template.jinja").read_text(), "{{ bos_token }}" + TEMPLATE)
        self.assertTrue((self.folder / "models" / "hf_iter_0000004" / "tokenizer.json").exists())
        self.trifold("convert", "--load", "tuned", "--save", "again")
        self.assertTrue((self.folder / "again" / "chat_template.jinja").exists())
        # The exported model is evaluated as the run's.
        for name in ("tuned", "again"):
            self.trifold("finetune", "--task", "chat", "--load", name, "--valid-data", "train.jsonl", "--micro-batch-size", 2,
                         "--log-json", name + ".log")
        self.assertLess(abs(self.valid("tuned.log")[0] - self.valid("again.log")[0]), 1e-6)
        # Another template of the folder, with a date that a resumed run keeps.
        dated = [*line, "--chat-template", "dated", "--save", "days", "--auto-resume", "--chat-date", "2025-03-09"]
        self.trifold(*dated, "--exit-interval", 2)
        _, text = self.trifold(*dated[:-1], "2025-03-10", status=2)
        self.assertIn("the checkpoint was trained on 30 conversations in", text)
        self.trifold(*dated[:-2], "--log-json", "days.jsonl")
        self.assertEqual(len(self.losses("days.jsonl")), 2)

    def test_tags_and_prefixes_find_the_same_answers(self):
        self.pretrained()
        self.write_chats("train.jsonl", 40)
        line = ["--train-data", "train.jsonl", "--train-iters", 4]
        self.chat(*line, "--log-json", "prefixes.jsonl")
        self.chat(*line, "--chat-template", "tagged.jinja", "--log-json", "tags.jsonl")
        self.assertEqual(self.losses("prefixes.jsonl"), self.losses("tags.jsonl"))

    def test_prompts_are_learned_without_a_template(self):
        self.pretrained()
        records = []
        for _ in range(200):
            animal = self.random.choice(sorted(ANIMALS))
            records.append({"prompt": f"{self.random.randrange(10**6)} {animal}: ", "completion": ANIMALS[animal]})
        self.write_lines("train.jsonl", records)
        self.trifold("finetune", "--task", "lm", "--load", "base", *TUNE, "--train-data", "train.jsonl", "--train-iters", 60,
                     "--save", "tuned", "--ranks", 2, "--dp", 2)
        out, _ = self.trifold("generate", "--load", "tuned", "--prompt", "771 cow: ", "--temperature", 0, "--max-new-tokens", 12)
        self.assertRegex(out, r"771 cow: moo$")

    def test_truncation_is_counted(self):
        self.pretrained()
        long = {"prompt": "x" * 300, "completion": "yes"}, {"prompt": "x", "completion": "y" * 300}
        self.write_lines("train.jsonl", [{"prompt": "a", "completion": "b"}, *long] * 2)
        counts = {"keep_start": "2 truncated, 2 dropped (2 without", "keep_end": "4 truncated, 0 dropped",
                  "drop": "0 truncated, 4 dropped (0 without"}
        for mode, words in counts.items():
            _, text = self.trifold("finetune", "--task", "lm", "--load", "base", *TUNE, "--train-data", "train.jsonl",
                                   "--train-iters", 1, "--truncation-mode", mode)
            self.assertIn("6 conversations, " + words, text)

    def test_training_stops_early(self):
        self.pretrained()
        self.write_chats("train.jsonl", 8)
        self.write_lines("dev.jsonl", [{"prompt": "?", "completion": "nothing of the kind"}])
        _, text = self.chat("--train-data", "train.jsonl", "--valid-data", "dev.jsonl", "--train-iters", 200, "--eval-interval", 5,
                            "--early-stop-patience", 2, "--save", "run", "--save-best")
        self.assertIn("were no better", text)
        self.assertTrue((self.folder / "run" / "BEST").is_symlink() or (self.folder / "run" / "BEST").exists())

    def test_mistakes_are_reported(self):
        self.pretrained()
        self.write_chats("train.jsonl", 4)
        (self.folder / "broken.jinja").write_text("{% for m in messages %}\n{{ m.content }\n{% endfor %}")
        (self.folder / "strict.jinja").write_text("{% if messages|length > 1 %}{{ raise_exception('one at a time') }}{% endif %}")
        self.write_lines("roles.jsonl", [self.conversation(1), {"messages": [{"role": "bot", "content": "a"}]}])
        self.write_lines("kwargs.jsonl", [{**self.conversation(1), "chat_template_kwargs": {"messages": [1]}}])
        line = ["--train-data", "train.jsonl", "--train-iters", 1]
        for arguments, part in (
                (["--train-data", "kwargs.jsonl", "--train-iters", 1],
                 "kwargs.jsonl, line 1: chat_template_kwargs has 'messages', which the conversation sets: leave it out"),
                ([*line, "--chat-template", "missing.jinja"], "--chat-template missing.jinja: there is no such file"),
                ([*line, "--chat-template", "broken.jinja"], "the chat template broken.jinja, line 2: "),
                ([*line, "--chat-template", "strict.jinja"], "train.jsonl, line 1: the chat template strict.jinja, line 1: one at a time"),
                (["--train-data", "roles.jsonl", "--train-iters", 1], "roles.jsonl, line 2: message 1 has the role 'bot'"),
                ([*line, "--predictions", "out"], "--predictions out has no effect without --valid-data"),
                ([*line, "--doc-stride", 3], "--doc-stride 3 has no effect without --task squad"),
                ([*line, "--chat-date", "today"], "--chat-date"),
                ([*line, "--save", "base"], "--save base is the folder of --load")):
            _, text = self.chat(*arguments, status=2)
            self.assertIn(part, text)
        _, text = self.trifold("finetune", "--task", "chat", "--load", "base", *TUNE, *line, status=2)
        self.assertIn("--task chat needs a chat template, which the model does not have", text)
        _, text = self.trifold("finetune", "--task", "lm", "--load", "base", *TUNE, *line, status=2)
        self.assertIn("train.jsonl, line 1: a conversation needs a chat template: give --task chat", text)
        _, text = self.trifold("finetune", "--task", "lm", "--chat-template", "chat.jinja", "--load", "base", *TUNE, *line, status=2)
        self.assertIn("--chat-template chat.jinja has no effect without --task chat", text)


if __name__ == "__main__":
    unittest.main()
