"""Whole runs from the command line: resume, ranks, evaluation, sampling, tokenizing, signals."""

import subprocess
import unittest

from program import GOLDEN, SMALL, TEXT, TRIFOLD, ProgramTest


class Run(ProgramTest):
    def test_two_runs_of_ten_equal_one_of_twenty(self):
        self.pretrain("--train-iters", 20, "--log-json", "whole.jsonl", "--save", "a")
        self.pretrain("--train-iters", 10, "--log-json", "parts.jsonl", "--save", "d")
        self.pretrain("--train-iters", 20, "--log-json", "parts.jsonl", "--save", "d", "--load", "d")
        self.assertEqual(len(self.losses("whole.jsonl")), 20)
        self.assertEqual(self.losses("whole.jsonl"), self.losses("parts.jsonl"))
        out, _ = self.trifold("inspect", "a", "--diff", "d")
        self.assertIn("are bitwise equal", out)

    def test_exit_interval_and_resume_with_a_schedule(self):
        schedule = ["--train-iters", 12, "--lr-decay-style", "cosine", "--lr-warmup-iters", 3, "--hidden-dropout", 0.1]
        self.pretrain(*schedule, "--log-json", "whole.jsonl")
        self.pretrain(*schedule, "--log-json", "parts.jsonl", "--save", "d", "--exit-interval", 5)
        self.pretrain(*schedule, "--log-json", "parts.jsonl", "--save", "d", "--load", "d")
        self.assertEqual(self.losses("whole.jsonl"), self.losses("parts.jsonl"))

    def test_a_run_that_lasts_too_long_stops_with_a_checkpoint_and_goes_on(self):
        run = ["--train-iters", 100000, "--ranks", 2, "--save", "d", "--auto-resume", "--log-json", "log.jsonl"]
        self.pretrain(*run, "--exit-duration-in-mins", 0.002)
        first = len(self.losses())
        self.assertGreater(first, 0)
        self.assertLess(first, 100000)
        self.assertIn(f"d/step_{first:010}", self.files())
        _, message = self.pretrain(*run, "--exit-duration-in-mins", 0.002)
        self.assertIn(f"saved       d/step_{len(self.losses()):010}", message)
        self.assertEqual([line["step"] for line in self.log() if "loss" in line],
                         list(range(1, len(self.losses()) + 1)))

    def test_two_thread_ranks_give_the_losses_of_one(self):
        for precision, tolerance in (([], 1e-5), (["--f64"], 1e-11)):
            logs = []
            for ranks in (1, 2):
                name = f"{len(precision)}_{ranks}.jsonl"
                self.pretrain("--train-iters", 20, "--ranks", ranks, "--log-json", name, *precision)
                logs.append(self.losses(name))
            self.assertEqual(len(logs[0]), 20)
            for one, two in zip(*logs):
                self.assertLess(abs(one - two), tolerance * one)

    def test_options_that_change_nothing_are_notes(self):
        idle = [("--save-interval", 2), ("--async-save",), ("--check-replicas", 0), ("--eval-interval", 2), ("--sequence-parallel",),
                ("--cp-comm-type", "a2a"), ("--zero-reduce", "each"), ("--schedule-max-in-flight", 3),
                ("--moe-token-dispatcher-type", "allgather"), ("--moe-buffer-factor", 1.5), ("--use-flash-attn",)]
        # The dropouts leave no default of Megatron-LM that would be noted too.
        words = [*(word for option in idle for word in option), "--eval-iters", 0, "--hidden-dropout", 0, "--attention-dropout", 0]
        self.pretrain("--train-iters", 4, "--log-json", "plain.jsonl")
        _, message = self.pretrain("--train-iters", 4, *words, "--log-json", "idle.jsonl")
        notes = [line for line in message.splitlines() if line.startswith("note: ")]
        self.assertEqual(len(notes), len(idle), message)
        self.assertEqual(message.splitlines()[:len(idle)], notes)
        for option in idle:
            self.assertEqual(sum(f"note: {' '.join(map(str, option))} has no effect" in note for note in notes), 1, message)
        self.assertEqual(len(self.losses("plain.jsonl")), 4)
        self.assertEqual(self.losses("plain.jsonl"), self.losses("idle.jsonl"))
        out, message = self.pretrain("--train-iters", 4, *words, "--print-config")
        self.assertNotIn("note: ", out)
        self.assertEqual(message.splitlines(), notes)

    def test_a_layout_that_is_chosen_trains_as_the_line_it_prints(self):
        kept = [word for pair in zip(SMALL[::2], SMALL[1::2]) if pair[0] != "--micro-batch-size" for word in pair]
        run = [*kept, "--data-path", TEXT, "--ranks", 2, "--train-iters", 4]
        _, message = self.trifold("pretrain", *run, "--auto-layout", "cpu", "--log-json", "chosen.jsonl", "--save", "d")
        line = message[message.index("layout      for cpu"):].splitlines()[1]
        words = line[line.index("--"):].split()
        self.assertIn("--micro-batch-size", words)
        self.trifold("pretrain", *run, *words, "--log-json", "given.jsonl")
        self.assertEqual(self.losses("chosen.jsonl"), self.losses("given.jsonl"))
        self.assertEqual(len(self.losses("chosen.jsonl")), 4)
        _, message = self.trifold("pretrain", *run, "--auto-layout", "v100", status=2)
        self.assertIn("a100-80gb", message)

    def test_numbers_that_are_not_finite_end_the_run_with_their_place(self):
        _, message = self.pretrain("--train-iters", 5, "--lr", "1e30", "--ranks", 2, "--tp", 2, status=1)
        self.assertRegex(message, r"trifold: step 2: the loss is nan; the first number that is not finite appears in "
                         r"micro-batch 0 \(samples 4 to 5 of the training data\) on rank 0 \(dp0\.pp0\.tp0\), element 0 of "
                         r"the output of block\.0\.attention\.qkv, \[64, 48\], is -?inf\. The weights and the optimizer's "
                         r"state were not changed")

    def test_a_skipped_step_is_reported_with_the_new_scale(self):
        _, message = self.pretrain("--train-iters", 3, "--fp16", "--hysteresis", 2)
        self.assertIn("step      1/3  skipped: gradients overflowed with loss scale 4.29497e+09; it is kept for now", message)
        self.assertIn("step      2/3  skipped: gradients overflowed with loss scale 4.29497e+09; it is 2.14748e+09 from "
                      "here on", message)

    def test_log_has_every_field(self):
        self.pretrain("--train-iters", 4, "--eval-interval", 2, "--eval-iters", 2, "--log-json", "log.jsonl")
        steps = [line for line in self.log() if "loss" in line]
        self.assertEqual([line["step"] for line in steps], [1, 2, 3, 4])
        self.assertEqual([line["consumed_samples"] for line in steps], [4, 8, 12, 16])
        self.assertEqual(set(steps[0]), {"step", "consumed_samples", "loss", "grad_norm", "lr", "loss_scale", "tokens",
                                         "sent_bytes", "left_node_bytes",
                                         "step_seconds", "tokens_per_second", "samples_per_second", "mfu", "resident_bytes",
                                         "skipped"})
        self.assertGreater(steps[0]["resident_bytes"], 1 << 20)
        evaluations = [line for line in self.log() if "valid_loss" in line]
        self.assertEqual([line["step"] for line in evaluations], [2, 4])
        self.assertEqual([set(line) for line in evaluations], [{"step", "valid_loss", "tokens"}] * 2)
        self.assertEqual(evaluations[0]["tokens"] % steps[0]["tokens"], 0)

    def test_gradient_norms_of_blocks(self):
        """Their squares add up, and have the same bits however the model is cut."""
        run = ["--train-iters", 4, "--log-block-grad-norms", "--clip-grad", 0.1, "--log-json"]
        self.pretrain(*run, "one.jsonl")
        blocks = [line["block_grad_norms"] for line in self.log("one.jsonl")]
        for line, norms in zip(self.log("one.jsonl"), blocks):
            self.assertEqual(len(norms), 4)  # the embedding, two layers, the head
            self.assertLess(abs(sum(norm * norm for norm in norms) ** 0.5 / line["grad_norm"] - 1), 1e-12)
        for mesh in (["--ranks", 2, "--pp", 2], ["--ranks", 2, "--pp", 2, "--zero-stage", 1]):
            self.pretrain(*run, "cut.jsonl", *mesh)
            self.assertEqual([line["block_grad_norms"] for line in self.log("cut.jsonl")], blocks)
            (self.folder / "cut.jsonl").unlink()
        self.pretrain(*run, "shared.jsonl", "--ranks", 4, "--tp", 2, "--zero-stage", 2)
        for norms, expected in zip((line["block_grad_norms"] for line in self.log("shared.jsonl")), blocks):
            for one, other in zip(norms, expected):
                self.assertLess(abs(one / other - 1), 1e-3)
        self.pretrain("--train-iters", 4, "--clip-grad", 0.1, "--log-json", "plain.jsonl")
        self.assertEqual(self.losses("plain.jsonl"), self.losses("one.jsonl"))
        _, message = self.pretrain(*run, "no.jsonl", "--ranks", 2, "--pp", 2, "--schedule", "pipedream", status=2)
        self.assertIn("--log-block-grad-norms is not possible with --schedule pipedream", message)

    def test_log_has_what_happened(self):
        run = ["--save", "d", "--save-interval", 2, "--auto-resume", "--log-json", "log.jsonl"]
        self.pretrain("--train-iters", 3, *run)
        self.pretrain("--train-iters", 4, *run, "--lr", "2e-3", "--ranks", 2)
        starts = self.events("log.jsonl", "start")
        self.assertEqual([(line["step"], line["command"], line["first_step"], line["last_step"]) for line in starts],
                         [(0, "pretrain", 1, 3), (3, "pretrain", 4, 4)])
        self.assertEqual([line["options"]["lr"] for line in starts], [1e-3, 2e-3])
        self.assertNotIn(None, starts[0]["options"].values())
        self.assertTrue(any("lr" in change for change in starts[1]["changes"]), starts[1])
        self.assertGreater(starts[0]["planned_bytes"], 1000)
        self.assertGreater(starts[0]["peak_flops"], 1e6)
        self.assertEqual([(line["step"], line["path"]) for line in self.events("log.jsonl", "saved")],
                         [(step, f"d/step_{step:010}") for step in (2, 3, 4)])

    def test_reshard_takes_the_copies_from_the_ranks(self):
        self.pretrain("--train-iters", 1, "--save", "d")
        self.trifold("reshard", "--load", "d", "--save", "four", "--ranks", 4, "--tp", 2)
        self.assertIn("mesh: dp 2, pp 1, tp 2", self.trifold("inspect", "four")[0])
        for mesh, why in (([5, "--tp", 2], "--ranks 5 is not divisible by tensor 2"),
                          ([4, "--tp", 2, "--dp", 4], "--ranks 4 is not tensor 2"), ([4, "--files", 2], "exclude each other")):
            _, message = self.trifold("reshard", "--load", "d", "--save", "other", "--ranks", *mesh, status=2)
            self.assertIn(why, message)

    def test_generate_and_evaluate(self):
        self.pretrain("--train-iters", 30, "--save", "d", "--log-json", "log.jsonl")
        arguments = ["generate", "--load", "d", "--prompt", "KING", "--max-new-tokens", 40, "--seed", 7]
        first, _ = self.trifold(*arguments)
        again, _ = self.trifold(*arguments)
        other, _ = self.trifold(*arguments[:-1], 8)
        self.assertTrue(first.startswith("KING"))
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)
        values = []
        for ranks in (1, 2):
            name = f"e{ranks}.jsonl"
            self.trifold("evaluate", "--load", "d", "--data-path", TEXT, "--split", "90,10,0", "--eval-iters", 16 // ranks,
                         "--ranks", ranks, "--log-json", name)
            values.append(self.log(name)[0]["valid_loss"])
        self.assertLess(abs(values[0] - values[1]), 1e-5 * values[0])
        self.assertLess(values[0], 5.0)

    def test_dropped_choices_are_logged_and_evaluation_drops_none(self):
        experts = ["--num-experts", 4, "--disable-bias-linear", "--train-iters", 3]
        limit = ["--moe-expert-capacity-factor", 0.75]
        _, message = self.pretrain(*experts, *limit, "--save", "d", "--log-json", "log.jsonl")
        dropped = [line["dropped"] for line in self.log() if "loss" in line]
        self.assertEqual([len(blocks) for blocks in dropped], [2, 2, 2])
        self.assertIn(f"dropped {sum(dropped[-1]):.0f}  ", message)
        self.assertGreaterEqual(min(min(blocks) for blocks in dropped), 4 * 32 * 2 / 4, "a quarter and more")
        self.pretrain(*experts[:-1], 4, "--load", "d", "--save", "d", "--log-json", "more.jsonl")  # without the limit
        self.assertNotIn("dropped", self.log("more.jsonl")[0])
        for ranks in (["--ranks", 1], ["--ranks", 2, "--cp", 2]):
            out, _ = self.trifold("evaluate", "--load", "d", "--data-path", TEXT, "--split", "90,10,0", "--eval-iters", 2, *ranks)
            self.assertIn("loss", out)

    def test_generate_prints_whole_characters(self):
        """Of bytes, and of a byte-level BPE whose tokens split every character of this text."""
        tokenizer = GOLDEN / "hf_tokenizers" / "gpt2.json"
        (self.folder / "emoji.txt").write_text("\U0001f460漢字" * 3000, encoding="utf-8")
        for name, choice in (("bytes", ()), ("pairs", ("--tokenizer-type", "huggingface", "--tokenizer-model", tokenizer))):
            self.pretrain("--train-iters", 2, "--save", name, *choice, data="emoji.txt")
            for temperature in (0, 1):  # hardly trained: most of it is not UTF-8
                done = subprocess.run([TRIFOLD, "generate", "--load", name, "--prompt", "漢", "--max-new-tokens", "60", "--temperature",
                                       str(temperature)], cwd=self.folder, capture_output=True, timeout=100, check=True)
                self.assertTrue(done.stdout.decode("utf-8").startswith("漢"))
            self.pretrain("--train-iters", 60, "--lr", "1e-2", "--save", f"{name}_more", *choice, data="emoji.txt")
            out, _ = self.trifold("generate", "--load", f"{name}_more", "--prompt", "漢字", "--max-new-tokens", 22, "--temperature", 0)
            self.assertIn("\U0001f460漢字\U0001f460漢", out)
        _, message = self.trifold("generate", "--load", "bytes", "--tokenizer-model", tokenizer, status=2)
        self.assertIn("--tokenizer-type", message)
        _, message = self.trifold("generate", "--load", "bytes", "--tokenizer-type", "huggingface", "--tokenizer-model", tokenizer,
                                  status=2)
        self.assertIn("the model of", message)
        self.assertIn("has 256 tokens, its tokenizer 600", message)
        out, _ = self.trifold("generate", "--load", "pairs", "--tokenizer-type", "byte", "--max-new-tokens", 3)

    def test_evaluate_checks_the_mesh_as_pretrain_does(self):
        self.pretrain("--train-iters", 1, "--save", "d")
        for mesh, part in ((("--ranks", 3, "--tp", 3), "--num-attention-heads 2 is not divisible by --tensor-model-parallel-size 3"),
                           (("--ranks", 4, "--tp", 4), "--num-attention-heads 2 is not divisible by --tensor-model-parallel-size 4"),
                           (("--ranks", 8, "--pp", 8), "--num-layers")):
            _, message = self.trifold("evaluate", "--load", "d", "--data-path", TEXT, *mesh, status=2)
            self.assertIn(part, message)

    def test_tokenize_then_train(self):
        (self.folder / "lines.jsonl").write_text("".join(f'{{"text": "line {i} of the text"}}\n' for i in range(200)))
        out, _ = self.trifold("tokenize", "--input", "lines.jsonl", "--output-prefix", "corpus")
        prefix = out.strip()
        self.assertEqual(prefix, "corpus_text_document")
        self.pretrain("--train-iters", 2, "--vocab-size", 256, "--split", "100,0,0", data=prefix)

    def test_documents_of_bytes_are_kept_apart(self):
        (self.folder / "lines.jsonl").write_text("".join(f'{{"text": "line {i} of the text"}}\n' for i in range(200)))
        self.trifold("tokenize", "--input", "lines.jsonl", "--output-prefix", "corpus", "--append-eod")
        self.assertEqual((self.folder / "corpus_text_document.bin").read_bytes().count(b"\0\0"), 200)  # tokens of two bytes
        for data in ("corpus_text_document", "lines.jsonl"):
            self.pretrain("--train-iters", 1, "--tokenizer-type", "byte", "--vocab-size", 256, "--split", "100,0,0",
                          "--reset-attention-mask", "--reset-position-ids", "--eod-mask-loss", data=data)

    def test_preprocess(self):
        """Malformed lines are reported with file, line and column; a second set takes the dictionaries over."""
        (self.folder / "a.csv").write_text("label,I1,C1\n1,3,0000abcd\n0,x,1\n0,,0000abcd\n")
        out, messages = self.trifold("preprocess", "--input", "a.csv", "--data-format", "csv-hex", "--output", "clicks", "--max-malformed", 0.5)
        self.assertEqual(out.strip(), "clicks")
        self.assertIn("1 of 3 lines is malformed and left out (column I1 is not a number: 1):\n  a.csv:3: column I1: 'x' is not a number", messages)
        self.assertIn("2 samples, 50.00 % clicked", messages)
        self.assertEqual((self.folder / "clicks" / "C1.ids").read_bytes(), b"\2\2")
        (self.folder / "b.csv").write_text("label,I1,C1\n1,3,f\n0,1,abcd\n")
        self.trifold("preprocess", "--input", "b.csv", "--data-format", "csv-hex", "--output", "test", "--dictionaries-of", "clicks")
        self.assertEqual((self.folder / "test" / "C1.ids").read_bytes(), b"\1\2")

    def test_a_signal_saves(self):
        self.assertIn("checkpoint", self.stop("--save", "d"))
        out, _ = self.trifold("inspect", "d", "--verify")
        self.assertIn("step", out)

    def test_a_standard_stream_that_is_closed_leaves_the_files_alone(self):
        # A file that got the number of the closed stream would receive the progress lines.
        for number, streams in enumerate(("2>&-", "1>&- 2>&-", "0<&- 1>&- 2>&-")):
            save, log = f"d{number}", f"{number}.jsonl"
            closed = ("sh", "-c", f'exec "$@" {streams}', "sh")
            self.pretrain("--train-iters", 2, "--log-json", log, "--save", save, "--save-interval", 1, prefix=closed)
            self.assertEqual([line["step"] for line in self.log(log)], [1, 2])
            self.trifold("inspect", save, "--verify")
        # Text that was asked for and went nowhere is a failure, not a success without a word.
        for streams in ("1>&-", "0<&- 1>&-"):
            closed = ("sh", "-c", f'exec "$@" {streams}', "sh")
            for command in (["inspect", "d0"], ["pretrain", "--help"]):
                _, message = self.trifold(*command, prefix=closed, status=1)
                self.assertIn("standard output cannot be written", message)

    def test_output_that_cannot_be_written_is_a_failure(self):
        self.pretrain("--train-iters", 1, "--save", "d")
        full = ("sh", "-c", 'exec "$@" > /dev/full', "sh")
        for command in (["inspect", "d"], ["generate", "--load", "d", "--max-new-tokens", 2], ["pretrain", "--help"]):
            _, message = self.trifold(*command, prefix=full, status=1)
            self.assertIn("standard output cannot be written", message)

    def test_print_config_is_a_config(self):
        text, _ = self.pretrain("--train-iters", 3, "--print-config")
        (self.folder / "run.ini").write_text(text)
        again, _ = self.trifold("pretrain", "--config", "run.ini", "--print-config")
        values = [[line.split("#")[0].rstrip() for line in t.splitlines()] for t in (text, again)]
        self.assertEqual(values[0], values[1])

    def test_bench_measures(self):
        out, _ = self.trifold("bench", "--num-layers", 1, "--hidden-size", 64, "--num-attention-heads", 2, "--vocab-size",
                              300, "--seq-length", 32, "--iters", 2, "--what", "step,gemm,comm", "--json", "b.json")
        for word in ("step", "gemm", "all_reduce", "peak resident"):
            self.assertIn(word, out)


if __name__ == "__main__":
    unittest.main()
