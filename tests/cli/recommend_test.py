"""Recommenders from the command line: ranks, placements, checkpoints that move between them, bad input."""

import json
import math
import os
import pathlib
import re
import shutil
import unittest
from xml.etree import ElementTree

from program import CLICKS as SMALL
from program import ProgramTest

MPIEXEC = os.environ.get("MPIEXEC", "")


class Recommend(ProgramTest):
    def recommend(self, *arguments, **options):
        """Trains a small model; an option in `arguments` takes the place of its."""
        taken = {*arguments, "--synthetic-samples"} if "--train-data" in arguments else arguments
        kept = [word for name, value in zip(SMALL[::2], SMALL[1::2]) if name not in taken for word in (name, value)]
        return self.trifold("recommend", *kept, *arguments, **options)

    def test_a_checkpoint_goes_on_with_other_ranks_and_placements(self):
        self.moves()

    def test_a_checkpoint_goes_on_with_another_zero_stage(self):
        self.moves(1, 2)

    def moves(self, *stages):
        self.recommend("--log-json", "whole.jsonl")
        self.recommend("--ranks", 2, "--placement", "row,column,table,replicated", "--train-iters", 9, "--save", "d",
                       "--log-json", "parts.jsonl", *(["--zero-stage", stages[0]] if stages else []))
        self.recommend("--ranks", 3, "--load", "d", "--log-json", "parts.jsonl",
                       *(["--zero-stage", stages[1]] if stages else []))
        whole, parts = self.losses("whole.jsonl"), self.losses("parts.jsonl")
        self.assertEqual(len(whole), 20)
        self.assertEqual(len(parts), 20)
        for one, other in zip(whole, parts):
            self.assertLess(abs(one - other), 2e-5 * one)

    def test_planned_stops_go_on_bit_for_bit(self):
        self.recommend("--save", "whole", "--save-interval", 7, "--log-json", "whole.jsonl")
        for _ in range(3):
            _, err = self.recommend("--save", "d", "--auto-resume", "--exit-interval", 7, "--log-json", "parts.jsonl")
        self.assertIn("steps       15 to 20", err)
        self.assertEqual(self.losses("parts.jsonl"), self.losses("whole.jsonl"))
        out, _ = self.trifold("inspect", "whole", "--diff", "d")
        self.assertIn("are bitwise equal", out)
        _, err = self.recommend("--save", "d", "--auto-resume")
        self.assertIn("all 20 steps are done already; nothing is left to train", err)

    def test_mlps_in_bf16_go_on_bit_for_bit(self):
        line = ("--bf16", "--optimizer", "adam", "--lr", 0.01, "--ranks", 2)
        self.recommend(*line, "--save", "whole", "--log-json", "whole.jsonl")
        self.recommend(*line, "--zero-stage", 1, "--train-iters", 9, "--save", "d", "--log-json", "parts.jsonl")
        self.recommend(*line, "--zero-stage", 2, "--load", "d", "--save", "d", "--log-json", "parts.jsonl")
        self.assertEqual(self.losses("parts.jsonl"), self.losses("whole.jsonl"))
        out, _ = self.trifold("inspect", "whole", "--diff", "d")
        self.assertIn("are bitwise equal", out)
        # The masters are f32, so the run can continue without rounding.
        self.recommend("--optimizer", "adam", "--lr", 0.01, "--load", "d", "--train-iters", 22)
        _, err = self.recommend("--bf16", "--f64", status=2)
        self.assertIn("--f64 is not possible with --bf16", err)

    def test_a_checkpoint_brings_its_model(self):
        model = ("--interaction", "cross", "--cross-layers", 2, "--cross-rank", 3, "--dropout", 0.2, "--optimizer", "adagrad",
                 "--weight-decay", 0.01, "--lr", 0.05)
        self.recommend(*model, "--ranks", 2, "--log-json", "whole.jsonl")
        self.recommend(*model, "--train-iters", 9, "--save", "d", "--log-json", "parts.jsonl")
        options = ("--bottom-mlp", "--top-mlp", "--embedding-dim", "--embedding-optimizer", "--lr")
        data = [word for name, value in zip(SMALL[::2], SMALL[1::2]) if name not in options for word in (name, value)]
        run = (*data, "--weight-decay", 0.01, "--lr", 0.05, "--load", "d")
        self.trifold("recommend", *run, "--ranks", 3, "--log-json", "parts.jsonl")
        whole, parts = self.losses("whole.jsonl"), self.losses("parts.jsonl")
        self.assertEqual(len(parts), len(whole))
        for one, other in zip(whole, parts):
            self.assertLess(abs(one - other), 2e-5 * one)
        self.trifold("recommend", *run, "--cross-layers", 2, "--eps", 1e-8)
        for more, words in ((("--interaction", "dot"), ["interaction: in the checkpoint \"cross\", requested \"dot\"",
                                                        "Model options that are left out are taken from it"]),
                            (("--top-mlp", "9-1"), ["top_mlp.0: in the checkpoint 8, requested 9"]),
                            (("--embedding-dim", 8), ["embedding_dim: in the checkpoint 4, requested 8"]),
                            (("--interaction-self",), ["interaction_self: in the checkpoint false, requested true"]),
                            (("--optimizer", "sgd"), ["optimizer: in the checkpoint \"adagrad\", requested \"sgd\""])):
            _, err = self.trifold("recommend", *run, *more, status=2)
            for text in words:
                self.assertIn(text, err)

    def small(self, *without):
        """The options of the small run but for some."""
        return [word for name, value in zip(SMALL[::2], SMALL[1::2]) if name not in without for word in (name, value)]

    def test_a_printed_configuration_brings_the_model_too(self):
        self.recommend("--interaction", "cross", "--cross-layers", 2, "--cross-rank", 3, "--train-iters", 9, "--save", "d")
        data = self.small("--bottom-mlp", "--top-mlp", "--embedding-dim", "--embedding-optimizer")
        run = (*data, "--load", "d")
        out, _ = self.trifold("recommend", *run, "--print-config")
        (self.folder / "run.cfg").write_text(out)
        _, err = self.trifold("recommend", "--config", "run.cfg", "--log-json", "file.jsonl")
        self.trifold("recommend", *run, "--log-json", "line.jsonl")
        self.assertEqual(self.losses("file.jsonl"), self.losses("line.jsonl"))
        # What the file changes was given, and so is what stands on the command line.
        (self.folder / "other.cfg").write_text(out.replace("embedding-dim = 16", "embedding-dim = 8"))
        _, err = self.trifold("recommend", "--config", "other.cfg", status=2)
        self.assertIn("embedding_dim: in the checkpoint 4, requested 8", err)
        _, err = self.trifold("recommend", "--config", "run.cfg", "--interaction", "dot", status=2)
        self.assertIn("interaction: in the checkpoint \"cross\", requested \"dot\"", err)

    def test_auto_resume_brings_the_model_too(self):
        resume = ("--save", "d", "--auto-resume")
        model = (*self.small("--embedding-optimizer"), "--optimizer", "adagrad", "--eps", 1e-6)
        _, err = self.trifold("recommend", *self.small("--embedding-optimizer"), *resume, "--eps", 1e-6, status=2)
        self.assertIn("--eps 1e-06 has no effect without --optimizer adagrad or adam, or --embedding-optimizer adagrad", err)
        _, err = self.recommend(*resume, "--embedding-dim", 8, status=2)
        self.assertIn("--bottom-mlp 8-4 does not end with --embedding-dim 8", err)
        self.trifold("recommend", *model, *resume, "--exit-interval", 9, "--log-json", "parts.jsonl")
        left = self.small("--embedding-optimizer", "--bottom-mlp", "--top-mlp", "--embedding-dim")
        self.trifold("recommend", *left, *resume, "--eps", 1e-6, "--log-json", "parts.jsonl")
        self.trifold("recommend", *model, "--log-json", "whole.jsonl")
        self.assertEqual(self.losses("parts.jsonl"), self.losses("whole.jsonl"))

    def test_a_plan_takes_the_model_of_a_checkpoint(self):
        model = ("--interaction", "cross", "--cross-layers", 2, "--cross-rank", 3)
        self.recommend(*model, "--train-iters", 9, "--save", "d")
        data = self.small("--bottom-mlp", "--top-mlp", "--embedding-dim", "--embedding-optimizer", "--dense-features",
                          "--synthetic-samples", "--valid-samples")
        self.trifold("plan", *self.small(), *model, "--json", "given.json")
        for start in (("--load", "d"), ("--auto-resume", "--save", "d")):
            self.trifold("plan", *data, *start, "--json", "taken.json")
            taken, given = (json.loads((self.folder / name).read_text()) for name in ("taken.json", "given.json"))
            for key in ("predicted_seconds", "tables", "ranks"):
                self.assertEqual(taken[key], given[key])
        for more, words in ((("--embedding-dim", 8), "embedding_dim: in the checkpoint 4, requested 8"),
                            (("--interaction", "dot"), "interaction: in the checkpoint \"cross\", requested \"dot\""),
                            (("--interaction", "dot", "--search"), "interaction: in the checkpoint")):
            _, err = self.trifold("plan", *data, "--load", "d", *more, status=2)
            self.assertIn(words, err)
        _, err = self.trifold("plan", *self.small("--embedding-dim"), "--embedding-dim", 8, "--auto-resume", "--save", "new", status=2)
        self.assertIn("--bottom-mlp 8-4 does not end with --embedding-dim 8", err)

    def test_tables_by_ftrl_go_on_bit_for_bit(self):
        line = ("--embedding-optimizer", "ftrl", "--ftrl-alpha", 0.2, "--ftrl-l1", 0.001, "--embedding-lr", 0.2)
        self.recommend(*line, "--save", "whole", "--log-json", "whole.jsonl")
        self.recommend(*line, "--ranks", 2, "--placement", "row,column,table,replicated", "--train-iters", 9, "--save", "d", "--log-json", "parts.jsonl")
        self.recommend(*line, "--ranks", 3, "--load", "d", "--log-json", "parts.jsonl")
        self.recommend(*line, "--train-iters", 9, "--save", "one", "--log-json", "one.jsonl")
        self.recommend(*line, "--load", "one", "--save", "one", "--log-json", "one.jsonl")
        whole = self.losses("whole.jsonl")
        self.assertEqual(self.losses("one.jsonl"), whole)
        self.assertLess(whole[-1], whole[0])
        for one, other in zip(whole, self.losses("parts.jsonl"), strict=True):
            self.assertLess(abs(one - other), 2e-5 * one)
        strong = [100 if word == 0.001 else word for word in line]
        self.recommend(*strong, "--log-json", "none.jsonl")
        self.assertNotEqual(self.losses("none.jsonl"), whole)

    def test_options_of_table_updates_that_have_no_effect(self):
        for line, message in ((("--ftrl-l1", 0.1), "--ftrl-l1 0.1 has no effect without --embedding-optimizer ftrl"),
                              (("--embedding-optimizer", "ftrl"), "--embedding-lr 0.05 has no effect with --embedding-optimizer ftrl"),
                              (("--embedding-optimizer", "ftrl", "--embedding-lr", 0.2, "--embedding-weight-decay", 0.1),
                               "--embedding-weight-decay 0.1 has no effect with --embedding-optimizer ftrl")):
            _, stderr = self.recommend(*line, status=2)
            self.assertIn(message, stderr)

    def test_stops_when_its_time_is_over(self):
        line = ("--train-iters", 10_000_000, "--save", "d")
        _, err = self.recommend(*line, "--exit-duration-in-mins", 0.001)
        self.assertIn("saved       d/step_", err)
        self.recommend(*line, "--exit-duration-in-mins", 0, status=2)

    def test_rates_follow_the_styles_of_pretrain(self):
        self.recommend("--lr-decay-style", "cosine", "--lr-warmup-iters", 5, "--min-lr", 0.02, "--log-json", "log.jsonl")
        rates = [line["lr"] for line in self.log() if "lr" in line]
        expected = [0.2 * step / 5 if step <= 5 else
                    0.02 + 0.18 * (1 + math.cos(math.pi * (step - 5) / 15)) / 2 for step in range(20)]
        for got, wanted in zip(rates, expected, strict=True):
            self.assertAlmostEqual(got, wanted, delta=1e-12)
        for arguments, message in (
                (["--lr-decay-style", "cosine", "--lr-decay-start", 3], "--lr-decay-start 3 has no effect without --lr-decay-style parabola"),
                (["--lr-warmup-fraction", 0.1], "--lr-warmup-fraction 0.1 has no effect with --lr-decay-style parabola"),
                (["--lr-decay-start", 3], "--lr-decay-start and --lr-decay-iters have an effect only together: give both"),
                (["--lr-decay-style", "linear", "--lr-warmup-iters", 30], "--lr-warmup-iters")):
            _, err = self.recommend(*arguments, status=2)
            self.assertIn(message, err)

    def test_tables_rates_follow_those_of_the_mlps(self):
        line = ("--train-iters", 1, "--embedding-optimizer", "sgd")
        self.recommend(*line, "--lr", 0.1, "--embedding-lr", 0.025, "--save", "plain")
        self.recommend(*line, "--lr", 0.2, "--embedding-lr", 0.05, "--lr-decay-style", "linear", "--lr-warmup-iters", 5,
                       "--lr-warmup-init", 0.1, "--lr-decay-iters", 20, "--save", "warm")
        out, _ = self.trifold("inspect", "plain", "--diff", "warm")
        self.assertIn("are bitwise equal", out)
        self.assertNotIn("differ", out.splitlines()[-1])

    def test_evaluation_is_reported_in_full(self):
        _, message = self.recommend("--eval-interval", 10, "--log-json", "log.jsonl")
        self.assertRegex(message, r"step +20/20  AUC 0\.\d{4} \(best possible 0\.\d{4}\)  log loss")
        lines = [line for line in self.log() if "valid_auc" in line]
        self.assertEqual([line["step"] for line in lines], [10, 20])
        self.assertEqual(lines[0]["valid_samples"], 1000)

    def test_an_interval_of_a_config_can_be_switched_off(self):
        (self.folder / "every.cfg").write_text("[training]\neval-interval = 10\n")
        config = ("--config", "every.cfg", "--log-json", "log.jsonl")
        _, message = self.recommend(*config, "--valid-samples", 0, status=2)
        self.assertIn("--eval-interval 0", message)
        self.recommend(*config, "--valid-samples", 0, "--eval-interval", 0)
        self.assertFalse([line for line in self.log() if "valid_auc" in line])
        (self.folder / "log.jsonl").unlink()
        self.recommend(*config, "--eval-interval", 0)
        self.assertEqual([line["step"] for line in self.log() if "valid_auc" in line], [20])

    def test_stops_at_the_target(self):
        _, message = self.recommend("--eval-interval", 5, "--target-auc", 0.51, "--train-epochs", 50)
        self.assertRegex(message, r"target      AUC 0\.\d+ after step \d+ reaches --target-auc 0\.51000")

    def test_bad_input(self):
        for arguments, message in (
                (["--bottom-mlp", "8-5"], "--bottom-mlp 8-5 does not end with --embedding-dim 4"),
                (["--placement", "row,diagonal,row,row"], "'diagonal' is none of table, row, column, replicated"),
                (["--placement", "row,row"], "--placement names 2 kinds for 4 tables"),
                (["--train-data", "missing.tsv"], "missing.tsv"),
                (["--memory-limit", "1e-6", "--ranks", 2], "--memory-limit"),
                (["--table-rows", "30-x"], "--table-rows '30-x' is not a list of numbers")):
            _, err = self.recommend(*arguments, status=2)
            self.assertIn(message, err)

    def test_the_bottom_mlp_is_that_of_the_data(self):
        """Data without dense features have none, whatever the default; others report one that does not fit."""
        (self.folder / "day.csv").write_text("y,age,user,item\n" + "".join(f"{i % 2},{i},u{i % 5},i{i % 7}\n" for i in range(40)))
        line = ("--embedding-dim", 4, "--top-mlp", "8-1", "--global-batch-size", 20, "--threads-per-rank", 1, "--train-iters", 1)
        for name, dense in (("without", ()), ("with", ("--dense", "age"))):
            self.trifold("preprocess", "--input", "day.csv", "--output", name, "--label", "y", "--sparse", "user,item", *dense)
        self.trifold("recommend", "--train-data", "without", *line, "--save", "run")
        self.trifold("score", "--load", "run", "--data", "without", "--output", "-")
        out, _ = self.trifold("plan", "--train-data", "without", "--embedding-dim", 4)
        self.assertIn("2 tables with 16 rows of 4 numbers", out)
        for bottom, words in (((), "--bottom-mlp 512-256-64-16 does"), (("--bottom-mlp", "8-5"), "--bottom-mlp 8-5 does")):
            _, err = self.trifold("recommend", "--train-data", "with", *line, *bottom, status=2)
            self.assertIn(words + " not end with --embedding-dim 4", err)

    def test_options_of_synthetic_clicks_beside_a_file(self):
        text = ["--train-data", "day_0"]
        for option in (["--synthetic-samples", 7000], ["--synthetic-zipf", 2], ["--synthetic-missing", 0.5], ["--synthetic-constant"]):
            _, err = self.recommend(*text, *option, status=2)
            self.assertIn(f"{' '.join(map(str, option))} has no effect without --train-data synthetic", err)
            _, err = self.trifold("plan", "--table-rows", "50-3", *text, *option, status=2)
            self.assertIn(f"{' '.join(map(str, option))} has no effect without --train-data synthetic", err)
            if option[0] != "--synthetic-samples":  # measurements are synthetic
                self.trifold("plan", "--table-rows", "50-3", *text, *option, "--measure-steps", 1, "--global-batch-size", 8)
        _, err = self.recommend(*text, "--data-format", "synthetic", status=2)
        self.assertIn("--train-data day_0 has no effect with --data-format synthetic", err)

    def test_cuda_where_there_is_none(self):
        if shutil.which("nvidia-smi"):
            self.skipTest("this machine has a driver")
        _, err = self.recommend("--device", "cuda", "--train-data", "missing.tsv", status=2)
        self.assertIn("--device cpu", err)
        self.assertIn("missing.tsv", err)
        self.assertEqual(err.count("CUDA cannot be used here") + err.count("cannot be loaded"), 1, err)

    def test_learns_synthetic_clicks(self):
        # 90 % of the excess over 0.5 within a second; recommend_learning_test.py continues to 97 %.
        self.recommend(*("--table-rows 200-100-30-10 --embedding-dim 8 --bottom-mlp 16-8 --top-mlp 32-1 "
                         "--synthetic-samples 120000 --valid-samples 20000 --global-batch-size 500 --optimizer adam "
                         "--embedding-optimizer adam --embedding-lr 0.01 --lr 0.01 --lr-decay-start 66 --lr-decay-iters 135 "
                         "--log-json log.jsonl").split())
        self.assertGreaterEqual(self.log()[-1]["valid_auc"] - 0.5, 0.85 * (0.71 - 0.5))

    def test_constant_features_teach_nothing(self):
        self.recommend("--synthetic-constant", "--log-json", "log.jsonl")
        self.assertEqual(self.log()[-1]["valid_auc"], 0.5)

    def test_goes_on_with_its_own_seed_and_data_only(self):
        self.recommend("--train-iters", 5, "--save", "d")
        for arguments, message in ((["--seed", 99], "was trained with --seed 1234"),
                                   (["--synthetic-samples", 7000], "synthetic clicks: 6000 samples"),
                                   (["--global-batch-size", 100], "continue with --global-batch-size 250")):
            _, err = self.recommend("--load", "d", *arguments, status=2)
            self.assertIn(message, err)

    def test_a_number_that_is_not_finite_is_named(self):
        # A rate of 1e45 is infinite in f32: one step makes its parameters infinite.
        cases = (("--lr", "--embedding-lr", r"on rank 0 \(.*\), element \d+ of the weight (bottom|top)\.\d\.weight"),
                 ("--embedding-lr", "--lr", r"in sample \d+ of the epoch on rank \d \(.*\), element \d+ of the vectors of "
                                            r"table "))
        for broken, other, place in cases:
            for clip in ([], ["--clip-grad", 1]):
                _, err = self.recommend("--embedding-optimizer", "sgd", broken, 1e45, other, 1e-3, "--ranks", 2, *clip,
                                         status=1)
                self.assertRegex(err, r"step 2: the loss is (nan|-?inf); the first number that is not finite appears " + place)

    def test_ids_and_files_that_do_not_fit(self):
        def line(first_id, label="1"):
            return "\t".join([label] + ["1"] * 13 + [first_id] + ["3"] * 25) + "\n"
        rows = "-".join(["8"] * 26)
        wide = ("--table-rows", rows, "--dense-features", 13, "--global-batch-size", 4, "--valid-samples", 2,
                "--train-iters", 1)
        (self.folder / "a.tsv").write_text("".join(line("7") for _ in range(9)) + line("ff"), encoding="ascii")
        _, err = self.recommend("--train-data", "a.tsv", *wide, status=2)
        self.assertRegex(err, r"a\.tsv: line 10, column C1: id 'ff' \(hexadecimal, 255 in decimal\) is outside the table, "
                               "which has 8 rows")
        for policy in ("modulo", "clip"):
            self.recommend("--train-data", "a.tsv", "--id-policy", policy, *wide)
        bad = "".join("7\tx\n" for _ in range(12))
        (self.folder / "b.tsv").write_text("".join(line("7") for _ in range(9)) + bad, encoding="ascii")
        for options, status in (((), 2), (("--max-malformed", 0.6), 0)):
            _, err = self.recommend("--train-data", "b.tsv", *wide, *options, status=status)
            self.assertIn("12 of 21 lines are malformed", err)
            self.assertIn("b.tsv:10:", err)
            self.assertEqual("b.tsv:19:" in err, status == 2)  # where it is an error, the first ten are shown
            self.assertNotIn("b.tsv:20:", err)
        (self.folder / "c.bin").write_bytes(b"\0" * (160 * 3 + 7))
        _, err = self.recommend("--train-data", "c.bin", *wide, status=2)
        self.assertIn("c.bin", err)
        (self.folder / "d.csv").write_text("label,I1,C1,C3\n1,1,2,3\n", encoding="ascii")
        _, err = self.recommend("--train-data", "d.csv", *wide, status=2)
        self.assertIn("d.csv:1: the header lacks a column before C3", err)

    def test_plans(self):
        configs = pathlib.Path(os.environ["TRIFOLD_ROOT"]) / "launch" / "configs"
        for name, ranks in (("kaggle", 1), ("kaggle", 4), ("mlperf", 16), ("dcnv2", 32)):
            out, _ = self.trifold("plan", "--config", configs / f"dlrm-{name}.cfg", "--ranks", ranks, "--json", "p.json")
            self.assertIn("predicted", out)
            plan = json.loads((self.folder / "p.json").read_text())
            self.assertEqual(len(plan["ranks"]), ranks)
            self.assertEqual(len(plan["tables"]), 26)
            self.assertGreater(plan["predicted_seconds"]["step"], 0)
        _, err = self.trifold("plan", "--config", configs / "dlrm-mlperf.cfg", "--ranks", 4, "--memory-limit", 16, status=2)
        self.assertRegex(err, r"needs .* with every table sharded by rows \(--placement row\), 7 ranks would suffice")
        self.trifold("plan", "--config", configs / "dlrm-mlperf.cfg", "--ranks", 7, "--memory-limit", 16)
        self.trifold("plan", "--config", configs / "dlrm-mlperf.cfg", "--ranks", 6, "--memory-limit", 16, status=2)

    def test_the_layout_of_a_recommender_is_searched(self):
        config = pathlib.Path(os.environ["TRIFOLD_ROOT"]) / "launch" / "configs" / "dlrm-mlperf.cfg"
        search = ["plan", "--config", config, "--ranks", 16, "--memory-limit", 16, "--search"]
        out, _ = self.trifold(*search, "--json", "found.json")
        found = json.loads((self.folder / "found.json").read_text())
        self.assertEqual(len(found["layouts"]), min(10, found["fitting"]))
        best = found["layouts"][0]
        self.assertEqual(re.search(r"^best        (.*)$", out, re.MULTILINE).group(1), " ".join(best["options"]))
        options = [word for option in best["options"] for word in option.split()]
        self.trifold("plan", "--config", config, "--memory-limit", 16, *options, "--json", "p.json")
        plan = json.loads((self.folder / "p.json").read_text())
        self.assertEqual(plan["predicted_seconds"]["step"], best["step_seconds"])
        _, err = self.trifold(*search, "--measure-steps", 2, status=2)
        self.assertIn("--measure-steps 2 has no effect with --search", err)

    def test_the_step_is_drawn(self):
        config = pathlib.Path(os.environ["TRIFOLD_ROOT"]) / "launch" / "configs" / "dlrm-kaggle.cfg"
        out, _ = self.trifold("plan", "--config", config, "--ranks", 4, "--svg", "step.svg", "--json", "p.json")
        row = re.search(r"^actions     (.*)$", out, re.MULTILINE).group(1).split(",")
        self.assertEqual(row[0], "0READ")
        self.assertEqual(row[-1], "0STEP")
        drawn = [title.text for title in ElementTree.parse(self.folder / "step.svg").iter("{http://www.w3.org/2000/svg}title")]
        actions = {text.split(":")[0] for text in drawn}
        self.assertEqual(actions, set(row) - {"0READ", "0REDUCE_GRAD", "1REDUCE_GRAD", "0LOSS"})
        parts = json.loads((self.folder / "p.json").read_text())["predicted_seconds"]
        expected = (parts["lookups"] + max(parts["bottom"], parts["vectors"]) + parts["top"] +
                    max(parts["weight gradients"], parts["gradients"]) + parts["update"] + parts["dense update"])
        self.assertAlmostEqual(parts["step"] / expected, 1, delta=1e-12)
        _, err = self.trifold("plan", "--config", config, "--svg", "missing/step.svg", status=2)
        self.assertIn("--svg missing/step.svg", err)

    def test_a_plan_is_measured(self):
        out, _ = self.trifold("plan", "--config", pathlib.Path(os.environ["TRIFOLD_ROOT"]) / "launch/configs/dlrm-small.cfg",
                               "--ranks", 2, "--measure-steps", 5, "--json", "p.json")
        self.assertRegex(out, r"measured here, 2 thread ranks, \d+ threads? each, \S+")
        plan = json.loads((self.folder / "p.json").read_text())
        self.assertEqual(plan["formula_sent_bytes"], plan["counted_sent_bytes"])
        self.assertGreater(plan["measured_seconds"]["step"], 0)

    @unittest.skipUnless(MPIEXEC and "NOTFOUND" not in MPIEXEC, "mpiexec is missing")
    def test_three_mpi_processes(self):
        # By default Open MPI refuses to run as root, and more ranks than cores; MPICH ignores these variables.
        os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                          OMPI_MCA_rmaps_base_oversubscribe="1", PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe")
        self.recommend("--log-json", "one.jsonl")
        prefix = [MPIEXEC, "-n", "3"]
        self.recommend("--placement", "row,column,table,replicated", "--log-json", "mpi.jsonl", prefix=prefix)
        for one, other in zip(self.losses("one.jsonl"), self.losses("mpi.jsonl"), strict=True):
            self.assertLess(abs(one - other), 2e-5 * one)


if __name__ == "__main__":
    unittest.main()
