"""Tables in files (recommend --table-storage): the bits of tables in memory, what is refused, what is planned, and runs that are killed."""

import json
import os
import pathlib
import random
import re
import shutil
import unittest

from kills import STEPS, KillTest
from program import CLICKS as SMALL
from program import TRIFOLD

MPIEXEC = os.environ.get("MPIEXEC", "")
ROUNDS = int(os.environ.get("TRIFOLD_CRASH_ROUNDS", "2"))
# Two tables that are larger than their share of the cache, between two that are not.
CLICKS = [word.replace("300-200-50-3", "9000-7000-50-3") for word in SMALL]
STORED = ["--table-storage", ".", "--table-cache", "0.00011"]


class RecommendStorage(KillTest):
    def line(self, save, *more, steps=STEPS):
        return [TRIFOLD, "recommend", *CLICKS, "--train-iters", str(steps), "--save", str(save), "--save-interval", "2",
                "--save-retain", "2", "--auto-resume", *more]

    def recommend(self, *arguments, steps=20, status=0, prefix=()):
        return self.trifold("recommend", *CLICKS, "--train-iters", steps, "--log-interval", 1, *arguments,
                            status=status, prefix=prefix)

    def curve(self, name):
        return [line.get("loss", line.get("valid_auc")) for line in self.log(name)]

    def test_keeps_the_bits_over_ranks_saves_and_loads(self):
        for place in ("row", "column,row,table,replicated"):
            where = ["--ranks", 2, "--placement", place]
            common = [*where, "--eval-interval", 6, "--save-interval", 5]
            self.recommend(*common, "--save", "plain", "--log-json", "plain.jsonl")
            _, stderr = self.recommend(*common, *STORED, "--save", "files", "--log-json", "files.jsonl")
            self.assertRegex(stderr, r"memory .*; tables in files \d")
            self.assertRegex(stderr, r"in memory \d+\.\d %  [\d.]+ samples/s")
            self.assertEqual(self.curve("plain.jsonl"), self.curve("files.jsonl"))
            self.expect_same("files", "plain")
            # Either run goes on from the other's checkpoint.
            self.recommend(*where, "--load", "files", "--save", "plain_on", steps=26)
            self.recommend(*where, *STORED, "--load", "plain", "--save", "files_on", "--async-save", steps=26)
            self.expect_same("files_on", "plain_on")
            for save in ("plain", "files", "plain_on", "files_on"):
                shutil.rmtree(self.folder / save)
            for log in ("plain.jsonl", "files.jsonl"):
                (self.folder / log).unlink()
        self.assertEqual([], list(self.folder.glob("trifold-memory*")))

    def test_weights_and_labels_behind_the_vectors(self):
        """First-order weights of two labels are in the rows, and an optimizer has two numbers of state for each."""
        optimizer = CLICKS.index("--embedding-optimizer")
        common = [TRIFOLD, "recommend", *CLICKS[:optimizer], *CLICKS[optimizer + 4:], "--wide", "--synthetic-labels", "2",
                  "--train-iters", "15", "--embedding-optimizer"]
        for rule in (["ftrl", "--ftrl-l1", "0.001"], ["adam", "--embedding-lr", "0.01", "--embedding-weight-decay", "0.1"]):
            for ranks in ("1", "2", "4"):
                where = [*rule, "--ranks", ranks, "--placement", "row" if ranks == "2" else "column"]
                self.complete([*common, *where, "--save", "plain"])
                _, stderr = self.complete([*common, *where, "--save", "files", "--table-storage", ".", "--table-cache", "0.00015"])
                self.assertRegex(stderr, r"in memory \d+\.\d %")
                self.expect_same("files", "plain")
                for save in ("plain", "files"):
                    shutil.rmtree(self.folder / save)

    def test_rows_are_counted(self):
        self.recommend(*STORED, "--log-json", "log.jsonl")
        steps = [line for line in self.log() if "loss" in line]
        self.assertEqual(steps[0]["file_rows_in_memory"], 0)
        self.assertGreater(steps[-1]["file_rows_in_memory"], 0.1 * steps[-1]["file_rows"])
        self.assertLessEqual(steps[-1]["file_rows"], 500)  # of 250 samples in two tables
        self.recommend("--table-storage", ".", "--log-json", "all.jsonl")  # 1 GiB: no files
        self.assertNotIn("file_rows", self.log("all.jsonl")[0])

    def test_evaluates_and_scores(self):
        self.recommend("--save", "d")
        rows = [",".join(map(str, (i % 3 == 0, *(i * d % 7 for d in range(1, 5)), i * 7919 % 9000, i * i % 7000, i % 50, i % 3)))
                for i in range(400)]
        (self.folder / "clicks.csv").write_text("label,I1,I2,I3,I4,C1,C2,C3,C4\n" + "\n".join(rows).replace("True", "1").replace("False", "0") + "\n")
        data = ["--load", "d", "--data", "clicks.csv", "--global-batch-size", 100]
        plain, _ = self.trifold("score", *data, "--output", "-")
        files, _ = self.trifold("score", *data, "--output", "-", "--ranks", 2, "--table-storage", ".", "--table-cache", "0.00006")
        self.assertEqual(len(plain.splitlines()), 401)
        for one, other in zip(plain.splitlines()[1:], files.splitlines()[1:]):
            self.assertAlmostEqual(float(one.split(",")[2]), float(other.split(",")[2]), delta=1e-6)
        self.trifold("evaluate", *data, *STORED)

    @unittest.skipUnless(MPIEXEC and "NOTFOUND" not in MPIEXEC, "mpiexec is missing")
    def test_mpi_ranks(self):
        # As in recommend_test.py.
        os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                          OMPI_MCA_rmaps_base_oversubscribe="1", PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe")
        where = ["--placement", "row", "--ranks", 2]
        self.recommend(*where, "--save", "plain")
        prefix = [MPIEXEC, "-n", "2"]
        self.recommend("--placement", "row", *STORED, "--save", "files", prefix=prefix)
        self.expect_same("files", "plain")

    def test_a_plan_counts_memory_and_files(self):
        plan = ["plan", *CLICKS, "--ranks", 2, "--placement", "row", "--json", "plan.json"]
        self.trifold(*plan)
        plain = json.loads((self.folder / "plan.json").read_text())["ranks"][0]["memory"]
        out, _ = self.trifold(*plan, *STORED)
        self.assertIn("tables in files", out)
        files = json.loads((self.folder / "plan.json").read_text())["ranks"][0]["memory"]
        self.assertEqual(plain["files"], 0)
        # Vectors of four numbers, and one of row-wise Adagrad: 204 rows in a page, and logs.
        pages = -(-4500 // 204) + -(-3500 // 204)
        self.assertGreater(files["files"], pages * 4096)
        self.assertLess(files["files"], (pages + 10) * 4096)
        self.assertLessEqual(files["tables"] + files["table_state"], 0.00011 * 2**30)
        self.assertGreater(files["tables"] + files["table_state"], 0.00009 * 2**30)
        self.assertGreater(plain["tables"], files["tables"])
        # With a device whole tables are pinned on the host.
        out, _ = self.trifold(*plan, "--device", "cuda", "--table-cache", 0.0001)
        pinned = [rank["memory"] for rank in json.loads((self.folder / "plan.json").read_text())["ranks"]]
        self.assertGreater(pinned[0]["pinned"], (4500 + 3500) * (4 + 1) * 4)
        self.assertGreater(pinned[0]["host"], 0)
        self.assertRegex(out, r"hosts +\d+\.\d+ KiB of all ranks together, for the tables and batches of their devices; this host has \d")
        # Terabytes of tables on two ranks of 16 GiB.
        huge = ["plan", "--table-rows", "2000000000-2000000000", "--embedding-dim", 128, "--bottom-mlp", "64-128", "--ranks", 2,
                "--memory-limit", 16]
        self.trifold(*huge, status=2)
        out, _ = self.trifold(*huge, "--table-storage", "/not/there/yet", "--table-cache", 12)
        self.assertRegex(out, r"tables in files \d+\.\d+ GiB")

    def test_bad_input(self):
        (self.folder / "file").write_text("")
        for arguments, message in (
                (["--table-storage", "missing"], "--table-storage missing: no file can be created there (No such file or directory)"),
                (["--table-storage", "file"], "--table-storage file: no file can be created there (Not a directory)"),
                (["--table-storage", ""], "--table-storage is empty: name a file or folder"),
                (["--table-cache", 1], "--table-cache 1 has no effect without --table-storage DIR, or --device cuda"),
                (["--table-storage", ".", "--table-cache", 0], "--table-cache"),
                (["--table-storage", ".", "--table-cache", "1e-6"], "is less than the rows of two batches take on a rank")):
            arguments = arguments if "--table-cache" in arguments else [*arguments, "--table-cache", "0.0002"]
            _, stderr = self.recommend(*arguments, status=2)
            self.assertIn(message, stderr)
            self.assertEqual(len(stderr.splitlines()), 1, stderr)
            self.assertNotIn("step ", stderr)
        if pathlib.Path("/proc/self").exists():
            _, stderr = self.recommend("--table-storage", "/proc", "--table-cache", "0.0002", status=2)
            self.assertIn("--table-storage /proc: no file can be created there", stderr)
        huge = ["recommend", "--table-rows", "2000000000-2000000000", "--embedding-dim", 1024, "--bottom-mlp", "8-1024", "--synthetic-samples", 6000,
                "--train-iters", 1, "--global-batch-size", 16]
        _, stderr = self.trifold(*huge, "--ranks", 2, status=2)
        self.assertRegex(stderr, r"2 ranks of this run need at least 14\.\d+ TiB of memory on this host, which has .*: up to .* a rank \(tables ")
        self.assertRegex(stderr, r"it fits with --table-storage DIR --table-cache 1 \(")
        _, stderr = self.trifold(*huge, "--table-storage", ".", status=2)
        self.assertTrue(re.search(r"--table-storage \.: a rank needs \d+ bytes there, and \d+ are free; free space, name another folder", stderr),
                        stderr)

    def test_killed_at_random_moments(self):
        ranks = ["--ranks", "2", "--placement", "row,column,table,replicated", *STORED]
        self.assertGreaterEqual(self.kill_rounds(ROUNDS, ranks), ROUNDS)
        self.complete(self.line("memory", *ranks[:4]))
        self.expect_same("whole", "memory")
        self.assertEqual([], list(self.folder.glob("trifold-memory*")))


class KeysInFiles(KillTest):
    """Tables whose rows get other owners while they are in files."""
    rows = ("--table-rows", "700-400-20")
    model = ("--embedding-dim", "64", "--bottom-mlp", "6-64", "--top-mlp", "6-1", "--global-batch-size", "15", "--lr", "0.1", "--threads-per-rank", "1",
             "--embedding-optimizer", "rowwise-adagrad", "--key-admission", "2", "--log-interval", "10")
    stored = ("--table-storage", ".", "--table-cache", "0.00005")

    def setUp(self):
        super().setUp()
        draw = random.Random(3)
        rows = (f"{draw.randrange(2)},{draw.randrange(9)},u{sample // 2 + int(draw.paretovariate(0.5)) % 2000},i{draw.randrange(30 + sample)},t{draw.randrange(9)}"
                for sample in range(1500))
        (self.folder / "day.csv").write_text("y,age,user,item,kind\n" + "\n".join(rows) + "\n")
        self.trifold("preprocess", "--input", "day.csv", "--output", "day", "--label", "y", "--dense", "age", "--sparse", "user,item,kind", "--ids", "keys", "--threads", 1)

    def line(self, save, *more, steps=STEPS):
        return [TRIFOLD, "recommend", "--train-data", "day", *self.rows, *self.model, "--train-iters", str(steps), "--save", str(save), "--save-interval", "2",
                "--save-retain", "2", "--auto-resume", *more]

    def recommend(self, save, *options):
        _, stderr = self.complete([TRIFOLD, "recommend", "--train-data", "day", *self.rows, *self.model, "--save", save, *map(str, options)])
        return stderr

    def test_keeps_the_bits(self):
        """Also those of a save in the middle, when the next batch's rows have come but its keys have not."""
        for ranks, placement, eviction in ((1, "row", "oldest"), (4, "row", "rarest"), (2, "column", "oldest"), (2, "table,replicated,row", "oldest")):
            where = ("--ranks", ranks, "--placement", placement, "--key-eviction", eviction)
            self.recommend("plain", *where, "--save-interval", 50)
            stderr = self.recommend("files", *where, *self.stored, "--save-interval", 50)
            self.assertRegex(stderr, r"tables in files \d")
            self.assertRegex(stderr, r"in memory \d\d?\.\d %")
            self.expect_same("files/step_0000000050", "plain/step_0000000050")
            self.expect_same("files", "plain")
            self.recommend("plain_on", *where, "--load", "files/step_0000000050")
            self.recommend("files_on", *where, *self.stored, "--load", "plain/step_0000000050", "--async-save")
            self.expect_same("plain_on", "plain")
            self.expect_same("files_on", "plain")
            if ranks == 1:
                scores = [self.trifold("score", "--load", save, "--data", "day", "--output", "-", "--global-batch-size", 15, "--threads-per-rank", 1, *more)[0]
                          for save, more in (("plain", ()), ("files", self.stored))]
                self.assertEqual(*scores)
            for save in ("plain", "files", "plain_on", "files_on"):
                shutil.rmtree(self.folder / save)

    def test_killed_at_random_moments(self):
        rounds = (ROUNDS + 1) // 2
        ranks = ["--ranks", "2", "--placement", "row", *self.stored]
        self.assertGreaterEqual(self.kill_rounds(rounds, ranks), rounds)
        self.complete(self.line("memory", *ranks[:4]))
        self.expect_same("whole", "memory")


if __name__ == "__main__":
    unittest.main()
