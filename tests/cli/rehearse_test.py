"""`trifold rehearse`: ranks of large meshes alone on this host, their report, and mistakes that it finds before a run starts."""

import json
import os
import pathlib
import re
import shlex
import subprocess
import unittest

from program import CLICKS, SMALL, TEXT, TRIFOLD, ProgramTest

# A rank of 64: 8 pipeline ranks of 2 tensor ranks, 4 copies.
MODEL = ("--num-layers 8 --hidden-size 32 --num-attention-heads 4 --seq-length 32 --vocab-size 256 --micro-batch-size 1 "
         "--global-batch-size 32 --threads-per-rank 1").split()
MESH = "--ranks 64 --tp 2 --pp 8".split()
NOBODY = 65534
PARTS = ("weight_bytes", "gradient_bytes", "optimizer_bytes", "activation_bytes", "workspace_bytes", "bytes")


class Rehearse(ProgramTest):
    def rehearse(self, *arguments, **options):
        output, _ = self.trifold("rehearse", *MODEL, *MESH, "--steps", "2", *arguments, "--json", "out.json", **options)
        return output, json.loads((self.folder / "out.json").read_text())

    def test_the_first_the_fullest_and_the_last_stage_are_run(self):
        output, found = self.rehearse("--hardware", "h100", "--bf16")
        places = [rank["pipeline_rank"] for rank in found["ranks"]]
        self.assertEqual((places[0], places[-1]), (0, 7))
        for rank in found["ranks"]:
            self.assertEqual(rank["rank"], 8 * rank["pipeline_rank"])
            self.assertEqual({part: rank["memory"]["held"][part] for part in PARTS},
                             {part: rank["memory"]["planned"][part] for part in PARTS})
            self.assertEqual(rank["micro_batches"], 8)
            forward = next(action for action in rank["actions"] if action["kind"] == "F")
            self.assertEqual(forward["count"], 8)
            self.assertGreater(forward["measured_seconds"], 0)
            self.assertGreater(forward["planned_seconds"], 0)
            self.assertTrue([call for call in rank["collectives"] if call["axes"] == "tp"])
        self.assertEqual(len(found["step"]["stages"]), 8)
        self.assertEqual([stage["scaled"] for stage in found["step"]["stages"]],
                         [place not in places for place in range(8)])
        for rank in found["ranks"]:
            forward = next(action for action in rank["actions"] if action["kind"] == "F")
            self.assertGreater(found["step"]["seconds"], 8 * forward["measured_seconds"])
        self.assertIn("result      nothing failed", output)
        self.assertIn("(no data was named)", output)

    def test_an_unprivileged_user_without_mpi(self):
        self.folder.chmod(0o777)

        def drop():
            if os.geteuid() == 0:
                os.setgid(NOBODY)
                os.setuid(NOBODY)

        done = subprocess.run([TRIFOLD, "rehearse", *MODEL, *MESH, "--only-ranks", "9", "--steps", "1"], cwd=self.folder, env={},
                              preexec_fn=drop, capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("rank 9 ", done.stdout)
        self.assertEqual(os.listdir(self.folder), [])  # nothing is written

    def test_the_command_that_a_plan_names(self):
        for model in ([*MODEL, *MESH, "--zero-stage", "1"], [*CLICKS, "--ranks", "4"]):
            planned, _ = self.trifold("plan", *model)
            command = re.search(r"^rehearse    trifold (.*)$", planned, re.MULTILINE).group(1)
            output, _ = self.trifold(*shlex.split(command), "--only-ranks", "1", "--steps", "1")
            self.assertIn("rank 1 ", output)

    def test_fewer_micro_batches_than_the_step_has(self):
        output, found = self.rehearse("--micro-batches", "3", "--only-ranks", "0")
        rank = found["ranks"][0]
        self.assertEqual(rank["micro_batches"], 3)
        self.assertGreater(rank["memory"]["whole_step_bytes"], rank["memory"]["planned"]["bytes"])
        self.assertIn("the step of all 8 micro-batches is planned to need", output)

        one_step = [*MODEL[:-4], "--global-batch-size", "4", *MODEL[-2:], "--ranks", "4"]
        _, errors = self.trifold("rehearse", *one_step, "--micro-batches", "4", status=2)
        self.assertIn("--micro-batches 4: a step of the run has only 1", errors)
        output, errors = self.trifold("rehearse", *MODEL, "--ranks", "2", "--pp", "2", "--schedule", "dualpipe-v", "--micro-batches", "1",
                                      status=2)
        self.assertIn("--micro-batches 1: ", errors)
        self.assertNotIn("mesh", output)

    def test_a_growing_batch_is_run_with_its_largest_size(self):
        small = [*MODEL[:-4], "--global-batch-size", "16", *MODEL[-2:], "--ranks", "8", "--pp", "4", "--only-ranks", "0",
                 "--json", "out.json", "--rampup-batch-size", "2", "2"]
        for length in ([], ["--train-iters", "10"]):
            output, _ = self.trifold("rehearse", *small, "14", *length)
            self.assertIn("batch       16 samples, the largest of the run's", output)
            rank = json.loads((self.folder / "out.json").read_text())["ranks"][0]
            self.assertEqual(rank["micro_batches"], 8)
            self.assertEqual(next(action["count"] for action in rank["actions"] if action["kind"] == "F"), 8)
            self.assertEqual(rank["memory"]["held"], rank["memory"]["planned"])
        limit = ["--memory-limit", str(0.99 * rank["memory"]["planned"]["bytes"] / 2**30), "--train-iters", "10"]
        output, _ = self.trifold("rehearse", *small, "14", *limit, status=1)
        self.assertIn("--memory-limit", output)
        # A run that ends before its batch has grown.
        output, _ = self.trifold("rehearse", *small, "1400", "--train-iters", "10")
        self.assertIn("nothing failed", output)

    def test_waiting_takes_the_planned_time(self):
        slow = ["--tensor-link-bandwidth", "0.001", "--only-ranks", "0"]
        _, found = self.rehearse(*slow)
        _, waited = self.rehearse(*slow, "--wait", "planned")
        planned = sum(call["planned_seconds"] for call in waited["ranks"][0]["collectives"] if call["axes"] == "tp")
        self.assertGreater(planned, 0.1)
        self.assertGreater(waited["ranks"][0]["step_seconds"], found["ranks"][0]["step_seconds"] + 0.8 * planned)

    def test_ranks_that_do_not_exist(self):
        for ranks, text in (("64", "names rank 64, but the mesh has 64 ranks"), ("0,0", "has rank 0 twice"), ("a", "give ranks from 0 on")):
            _, errors = self.trifold("rehearse", *MODEL, *MESH, "--only-ranks", ranks, status=2)
            self.assertIn(text, errors)

    def test_mistakes_that_a_start_would_find(self):
        self.trifold("pretrain", *SMALL, "--data-path", TEXT, "--train-iters", "1", "--save", "old")
        locked = self.folder / "file"
        locked.write_text("")
        real = [*SMALL, "--train-iters", "9", "--ranks", "4", "--pp", "2"]
        for arguments, text in (
                (["--data-path", "tex.txt"], "tex.txt"),
                (["--data-path", TEXT, "--load", "nothing"], "nothing"),
                (["--data-path", TEXT, "--load", "old", "--num-layers", "3"], "num_layers"),
                (["--data-path", TEXT, "--tokenizer-type", "sentencepiece", "--tokenizer-model", "no.model"], "no.model"),
                (["--data-path", TEXT, "--save", "file/new"], "file is a file"),
                (["--data-path", TEXT, "--min-lr", "1"], "--min-lr 1")):
            options = [word for name, value in zip(real[::2], real[1::2]) if name not in arguments for word in (name, value)]
            status = {command: self.trifold(command, *options, *arguments, *more, status=2)[1]
                      for command, more in (("rehearse", ["--only-ranks", "0"]), ("pretrain", []))}
            self.assertIn(text, status["rehearse"])
            self.assertEqual(status["rehearse"], status["pretrain"])

    def test_its_part_of_a_checkpoint_is_loaded(self):
        self.trifold("pretrain", *SMALL, "--data-path", TEXT, "--train-iters", "1", "--save", "old")
        output, _ = self.trifold("rehearse", *SMALL, "--data-path", TEXT, "--train-iters", "50", "--ranks", "4", "--pp", "2", "--load", "old",
                                 "--only-ranks", "1", "--steps", "1")
        self.assertIn("the checkpoint in old", output)
        self.assertIn("loaded  ", output)
        _, errors = self.trifold("rehearse", *SMALL, "--data-path", TEXT, "--load", "old", status=2)
        self.assertIn("the run continues from old, and its length is not known: give --train-iters", errors)
        self.trifold("rehearse", *SMALL, "--data-path", TEXT, "--load", "old", "--finetune", "--steps", "1")

    def test_a_rank_that_does_not_fit(self):
        output, found = self.rehearse("--memory-limit", "0.0001", "--only-ranks", "0", status=1)
        self.assertIn("--memory-limit is 0.0001 GiB", found["failures"][0])
        self.assertIn("fails       pipeline rank", output)

    def test_a_recommender(self):
        output, _ = self.trifold("rehearse", *CLICKS, "--ranks", "16", "--steps", "2", "--json", "out.json")
        found = json.loads((self.folder / "out.json").read_text())
        self.assertEqual(found["ranks"][0]["rank"], 0)
        self.assertEqual(found["ranks"][-1]["rank"], 15)
        self.assertGreater(found["step"]["samples_per_second"], 0)
        self.assertIn("result      nothing failed", output)

    def test_a_recommender_whose_configuration_names_no_data(self):
        config = pathlib.Path(os.environ["TRIFOLD_ROOT"]) / "launch" / "configs" / "dlrm-kaggle.cfg"
        output, _ = self.trifold("rehearse", "--config", config, "--ranks", "64", "--only-ranks", "0,63", "--steps", "1",
                                 "--threads-per-rank", "1")
        self.assertIn("random clicks", output)
        self.assertIn("result      nothing failed", output)

    def test_a_finetuning(self):
        self.trifold("pretrain", *SMALL, "--data-path", TEXT, "--train-iters", "1", "--save", "old")
        lines = "".join(json.dumps({"text": f"line {i} of a text"}) + "\n" for i in range(40))
        (self.folder / "t.jsonl").write_text(lines)
        task = "--task lm --train-data t.jsonl --micro-batch-size 2 --train-iters 9 --lr 1e-3 --threads-per-rank 1".split()
        output, _ = self.trifold("rehearse", *task, "--load", "old", "--ranks", "4", "--pp", "2", "--only-ranks", "3", "--steps", "1")
        self.assertIn("rank 3 ", output)
        _, errors = self.trifold("rehearse", *task, "--load", "old", "--ranks", "4", "--pp", "2", "--moe-load-imbalance", "100", status=2)
        self.assertIn("--moe-load-imbalance 100 has no effect, because no ranks share experts", errors)


if __name__ == "__main__":
    unittest.main()
