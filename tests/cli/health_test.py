"""Slow ranks, spikes of the loss, and samples that are skipped.

  health_test.py                   seconds
  TRIFOLD_LONG_HEALTH=1 ...        also 10 000 steps of two pinned processes while load moves between the cores
"""

import json
import os
import re
import signal
import subprocess
import time
import unittest

from program import CLICKS, SMALL, TEXT, TRIFOLD, ProgramTest

MPIEXEC = os.environ.get("MPIEXEC", "")
HAS_MPI = bool(MPIEXEC) and "NOTFOUND" not in MPIEXEC
LONG = bool(os.environ.get("TRIFOLD_LONG_HEALTH"))
MPI_ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_rmaps_base_oversubscribe": "1"}


class Health(ProgramTest):
    def records(self, log):
        return [json.loads(line) for line in (self.folder / log).read_text().splitlines()]

    def losses_of(self, log):
        """The loss of each step; the last one counts where a step was repeated."""
        return {r["step"]: r["loss"] for r in self.records(log) if "loss" in r and "event" not in r}

    def events(self, log, name):
        return [r for r in self.records(log) if r.get("event") == name]

    def run_slow(self, fault, *more, launcher=()):
        options = dict(zip(SMALL[::2], SMALL[1::2]))
        options.update(zip(more[::2], more[1::2]))
        line = [*launcher, TRIFOLD, "pretrain", *[word for option in options.items() for word in option], "--data-path", TEXT,
                "--log-json", "log.jsonl", "--straggler-interval", 4]
        done = subprocess.run([str(word) for word in line], cwd=self.folder, capture_output=True, text=True, timeout=300,
                              env={**os.environ, **MPI_ENVIRONMENT, "TRIFOLD_TEST_FAULT": fault}, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr

    WORK = ["--train-iters", 150, "--global-batch-size", 16, "--hidden-size", 64, "--seq-length", 64, "--num-layers", 3]

    def check_named(self, log, rank, since):
        """On a machine with other work that may take longer than the 20 steps of a quiet one (run_stragglers_test.cpp)."""
        slow = [e for e in self.events(log, "slow_rank") if e["rank"] == rank]
        self.assertTrue(slow, self.events(log, "slow_rank"))
        self.assertGreater(slow[0]["step"], since)
        self.assertGreater(slow[0]["times"], 1.3)

    def test_a_slow_thread_is_named(self):
        text = self.run_slow("1:slow:forward:15", "--ranks", 2, "--threads-per-rank", 1, *self.WORK)
        self.check_named("log.jsonl", 1, 15)
        self.assertRegex(text, r"WARNING     step \d+: rank 1 \(host \S+, pid \d+\) is slow: it needs \d+\.\d ms of its own a step, "
                         r"\d\.\d\d times what its peers need")

    @unittest.skipUnless(HAS_MPI, "mpiexec is missing")
    def test_a_slow_process_is_named(self):
        self.run_slow("1:slow:forward:15", "--threads-per-rank", 1, *self.WORK, launcher=[MPIEXEC, "-n", 2])
        self.check_named("log.jsonl", 1, 15)

    def rollback(self, save, log, *more):
        return self.spiky("--on-loss-spike", "rollback", "--loss-spike-skip", 3, "--save", save, "--save-interval", 10, "--log-json",
                          log, *more)

    def test_a_rollback_skips_the_samples_of_the_spike(self):
        """The run after it is the run that resumes from the checkpoint with these steps skipped."""
        self.spiky_text()
        _, text = self.rollback("a", "a.jsonl")
        spike, = self.events("a.jsonl", "loss_spike")
        first, last, back = spike["first_skipped_step"], spike["last_skipped_step"], spike["to_step"]
        self.assertEqual((last, last - first), (spike["step"], 2))
        self.assertEqual((spike["first_skipped_sample"], spike["last_skipped_sample"]), ((first - 1) * 8, last * 8 - 1))
        self.assertIn(f"The run continues from the checkpoint of step {back} and skips steps {first}-{last}", text)
        self.assertEqual(back, (last - 1) // 10 * 10)
        self.spiky("--load", f"a/step_{back:010}", "--iterations-to-skip", *range(first, last + 1), "--log-json", "b.jsonl")
        after, expected = self.losses_of("a.jsonl"), self.losses_of("b.jsonl")
        self.assertEqual({step: after[step] for step in expected}, expected)
        self.assertIsNone(expected[last])
        # A restart after the rollback, from a checkpoint that knows of it.
        self.rollback("c", "c.jsonl", "--load", f"a/step_{(last + 9) // 10 * 10:010}")
        again = self.losses_of("c.jsonl")
        self.assertEqual(again, {step: after[step] for step in again})
        self.assertEqual(self.events("c.jsonl", "loss_spike"), [])

    def test_meshes_return_alike(self):
        self.spiky_text()
        self.rollback("a", "a.jsonl", "--f64")
        for name, mesh in [("pipeline", ["--pp", 2, "--tp", 2, "--dp", 1, "--ranks", 4]),
                           ("sharded", ["--ranks", 4, "--zero-stage", 3, "--async-save"])]:
            with self.subTest(mesh=name):
                self.rollback(name, f"{name}.jsonl", "--f64", *mesh)
                spikes = [self.events(log, "loss_spike")[0] for log in ("a.jsonl", f"{name}.jsonl")]
                for key in ("step", "to_step", "first_skipped_step", "last_skipped_sample"):
                    self.assertEqual(spikes[0][key], spikes[1][key])
                one, other = self.losses_of("a.jsonl"), self.losses_of(f"{name}.jsonl")
                self.assertEqual(one.keys(), other.keys())
                for step, loss in one.items():
                    if loss is None:
                        self.assertIsNone(other[step])
                    else:
                        self.assertAlmostEqual(loss, other[step], delta=1e-9)

    def test_a_spike_may_end_the_run(self):
        self.spiky_text()
        _, text = self.spiky("--on-loss-spike", "stop", "--save", "a", "--save-interval", 10, status=1)
        self.assertRegex(text, r"trifold: step \d+: the loss \d\.\d+ is a spike: before it was .* \(samples \d+-\d+\); the run ends")
        steps = sorted(p.name for p in (self.folder / "a").glob("step_*"))
        self.assertLess(int(steps[-1][5:]), int(re.search(r"trifold: step (\d+)", text)[1]))

    def test_a_spike_does_not_lose_the_save_in_flight(self):
        self.spiky_text()
        _, text = self.spiky("--on-loss-spike", "stop", "--save", "a", "--save-interval", 1, "--save-retain", 4, "--async-save", status=1)
        spike = int(re.search(r"trifold: step (\d+)", text)[1])
        self.trifold("inspect", f"a/step_{spike - 1:010}", "--verify")

    def test_a_run_without_a_checkpoint_cannot_return(self):
        self.spiky_text()
        _, text = self.spiky("--on-loss-spike", "rollback", "--save", "a", "--save-interval", 1000, status=1)
        self.assertRegex(text, r"trifold: step \d+: the loss .* is a spike.*cannot return to a checkpoint")

    def test_options(self):
        for options, part in [(["--on-loss-spike", "rollback"], "--save"),
                              (["--on-loss-spike", "rollback", "--save", "d", "--save-interval", 2, "--no-save-optim"], "--no-save-optim"), (["--loss-spike-factor", 3], "--on-loss-spike"),
                              (["--iterations-to-skip", 0], "at least 1"),
                              (["--iterations-to-skip", 3, "--pp", 2, "--ranks", 2, "--schedule", "pipedream-2bw"], "pipedream-2bw")]:
            with self.subTest(options=options):
                _, text = self.pretrain(*options, status=2)
                self.assertIn(part, text)

    def test_skipped_steps_of_a_language_model(self):
        self.pretrain("--train-iters", 12, "--iterations-to-skip", 5, 6, "--log-json", "a.jsonl")
        records = {r["step"]: r for r in self.records("a.jsonl") if "consumed_samples" in r}
        self.assertEqual([records[s]["skipped"] for s in range(4, 8)], [False, True, True, False])
        self.assertEqual(records[5]["lr"], records[7]["lr"])  # the learning rate waits
        batch = records[1]["consumed_samples"]
        self.assertEqual([records[s]["consumed_samples"] for s in range(1, 13)], [s * batch for s in range(1, 13)])
        # A resumed run skips alike.
        self.pretrain("--train-iters", 12, "--iterations-to-skip", 5, 6, "--save", "d", "--save-interval", 4, "--exit-interval", 4)
        self.pretrain("--train-iters", 12, "--iterations-to-skip", 5, 6, "--load", "d", "--log-json", "b.jsonl")
        whole, resumed = self.losses_of("a.jsonl"), self.losses_of("b.jsonl")
        self.assertEqual(resumed, {step: whole[step] for step in range(5, 13)})

    def test_skipped_steps_of_a_recommender(self):
        run = ["recommend", *CLICKS, "--train-iters", 12, "--iterations-to-skip", 5, 6, 9]
        self.trifold(*run, "--log-json", "a.jsonl", "--save", "d", "--save-interval", 4)
        whole = self.losses_of("a.jsonl")
        self.assertEqual([step for step, loss in whole.items() if loss is None], [5, 6, 9])
        self.trifold(*run, "--load", "d/step_0000000004", "--log-json", "b.jsonl")
        self.assertEqual(self.losses_of("b.jsonl"), {step: whole[step] for step in range(5, 13)})

    @unittest.skipUnless(LONG and HAS_MPI and hasattr(os, "sched_setaffinity"), "long")
    def test_no_alarm_while_load_moves(self):
        """Two processes of one thread, each on a core of its own; a busy loop moves between the cores every 10 steps."""
        steps = 10_000
        cores = sorted(os.sched_getaffinity(0))[:2]
        line = [MPIEXEC]
        options = dict(zip(SMALL[::2], SMALL[1::2]))
        options.update({"--straggler-interval": 4, "--train-iters": steps, "--log-json": "log.jsonl", "--log-interval": 1000,
                        "--threads-per-rank": 1, "--global-batch-size": 8, "--micro-batch-size": 2, "--hidden-size": 64,
                        "--seq-length": 64})
        options = [word for option in options.items() for word in option]
        for core in cores:
            line += [*([":"] if core != cores[0] else []), "-n", 1, "taskset", "-c", core, TRIFOLD, "pretrain",
                     "--data-path", TEXT, *options]
        hog = subprocess.Popen(["sh", "-c", "while :; do :; done"], start_new_session=True)
        try:
            with subprocess.Popen([str(w) for w in line], cwd=self.folder, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  env={**os.environ, **MPI_ENVIRONMENT}) as run:
                log, moves = self.folder / "log.jsonl", 0
                while run.poll() is None:
                    time.sleep(0.002)
                    done = log.read_bytes().count(b"\n") if log.exists() and log.stat().st_size < 1 << 16 else self.step_in(log)
                    if done // 10 != moves:
                        moves = done // 10
                        os.sched_setaffinity(hog.pid, {cores[moves % 2]})
        finally:
            os.killpg(hog.pid, signal.SIGKILL)
            hog.wait()
        self.assertEqual(run.returncode, 0)
        self.assertEqual(len(self.losses_of("log.jsonl")), steps)
        self.assertEqual(self.events("log.jsonl", "slow_rank"), [])

    @staticmethod
    def step_in(log):
        """The step of the last whole line."""
        if not log.exists():
            return 0
        with open(log, "rb") as file:
            file.seek(max(0, log.stat().st_size - 4096))
            lines = file.read().split(b"\n")
        for text in reversed(lines[:-1]):
            if text.startswith(b'{"step":'):
                return int(text[8:].split(b",")[0])
        return 0


if __name__ == "__main__":
    unittest.main()
