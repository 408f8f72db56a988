"""Killed runs and full disks: committed checkpoints survive, and the run resumes bit by bit.

  crash_test.py                    a short version, minutes
  TRIFOLD_WHOLE=1 ...              every phase and limit in every mode
  TRIFOLD_CRASH_ROUNDS=200 ...     the long one; TRIFOLD_CRASH_SEED=N another one. A failure names its seed and round.
"""

import concurrent.futures
import os
import shutil
import subprocess
import unittest

from kills import AT_ONCE, PHASES, ROUNDS, STEPS, KillTest
from program import SMALL, TEXT, TRIFOLD, WHOLE

MPIEXEC = os.environ.get("MPIEXEC", "")
HAS_MPI = bool(MPIEXEC) and "NOTFOUND" not in MPIEXEC


def small_with(*replaced):
    kept = []
    for name, value in zip(SMALL[::2], SMALL[1::2]):
        if name not in replaced:
            kept += [name, value]
    return kept


class Crash(KillTest):
    def line(self, save, *more, steps=STEPS):
        return [TRIFOLD, "pretrain", *small_with(), "--data-path", str(TEXT), "--train-iters", str(steps), "--save", str(save),
                "--save-interval", "2", "--save-retain", "2", "--auto-resume", "--hidden-dropout", "0.1", *more]

    def test_killed_at_random_moments(self):
        self.assertGreaterEqual(self.kill_rounds(ROUNDS, ["--ranks", "2", "--zero-stage", "1"]), ROUNDS)

    def test_killed_at_random_moments_while_saving_in_the_background(self):
        self.assertGreaterEqual(self.kill_rounds(ROUNDS // 2, ["--ranks", "2", "--async-save"]), ROUNDS // 2)

    @unittest.skipUnless(HAS_MPI, "mpiexec is missing")
    def test_processes_killed_at_random_moments(self):
        os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                          OMPI_MCA_rmaps_base_oversubscribe="1")
        self.kill_rounds(max(2, ROUNDS // 3), ["--distributed-timeout-minutes", "1"], [MPIEXEC, "-n", "2"])

    def test_killed_at_each_phase_of_a_save(self):
        ranks = ["--ranks", "2", "--zero-stage", "1"]  # both of them write
        modes = {"at_once": ranks, "behind": [*ranks, "--async-save"]}
        for reference, more in modes.items():
            self.complete(self.line(reference, *more, steps=12))
        # Most of the time is spent waiting for the disk, so several runs are active at a time.
        cases = [(phase, more, reference) for reference, more in modes.items()
                 for phase in (PHASES if WHOLE or reference == "at_once" else PHASES[1::2])]
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for case, done in [(case, pool.submit(self.kill_at, *case)) for case in cases]:
                with self.subTest(phase=case[0], mode=case[2]):
                    done.result()

    def limited(self, policy, number, limits, before):
        """No file may have more bytes than that: an error, no crash, and what is committed stays."""
        save, limit = f"{policy}{number}", limits[number]
        # Set by a program, not between fork and exec, because this process has threads.
        status, text = self.complete(self.line(save, "--ranks", "2", "--on-save-error", policy, steps=8),
                                     ["prlimit", f"--fsize={limit}:{limit}"], status=None)
        self.assertEqual(status, 1, text)
        self.assertIn(f"saving {save}/step_", text)
        self.assertIn("File too large", text)
        # With 'continue' the run reaches its end, and only the failed last save ends it with an error.
        self.assertEqual("WARNING" in text, policy == "continue", text)
        self.assertEqual(self.committed(save), before)
        for step in before:
            self.trifold("inspect", f"{save}/step_{step:010}", "--verify")
        self.assertFalse([p.name for p in (self.folder / save).iterdir() if "tmp" in p.name], text)

    def test_a_file_that_may_not_grow(self):
        """RLIMIT_FSIZE from nothing to nearly enough: each phase of a save meets it."""
        self.complete(self.line("d", "--ranks", "2", steps=4))
        largest = max(p.stat().st_size for p in (self.folder / "d").rglob("*") if p.is_file())
        before = self.committed("d")
        limits = [0, 100, 1000, 3000, 10_000, largest // 4, largest // 2, largest - 5000, largest - 1]
        for policy in ("stop", "continue"):
            for name in range(len(limits)):
                shutil.copytree(self.folder / "d", self.folder / f"{policy}{name}")
        cases = [(policy, number) for odd, policy in enumerate(("stop", "continue")) for number in range(len(limits))
                 if WHOLE or number % 2 == odd]
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for case, done in [(case, pool.submit(self.limited, *case, limits, before)) for case in cases]:
                with self.subTest(policy=case[0], limit=limits[case[1]]):
                    done.result()
        self.complete(self.line("d", "--ranks", "2", steps=8))

    def test_a_full_disk(self):
        mount = self.folder / "small"
        mount.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(mount)], capture_output=True,
                          check=False).returncode != 0:
            self.skipTest("a small file system cannot be mounted here")
        try:
            self.complete(self.line("small/d", "--ranks", "2", steps=2))
            room = shutil.disk_usage(mount).free
            (mount / "ballast").write_bytes(b"x" * (room - 100_000))
            for more in ([], ["--async-save"]):
                _, text = self.complete(self.line("small/d", "--ranks", "2", *more, steps=4), status=1)
                self.assertIn("bytes, but", text)
                self.assertIn("are free on the file system", text)
                self.trifold("inspect", "small/d", "--verify")
            (mount / "ballast").unlink()
            self.complete(self.line("small/d", "--ranks", "2", steps=4))
        finally:
            subprocess.run(["umount", str(mount)], check=True)

    def test_damage_is_named_and_passed_over(self):
        self.complete(self.line("d", "--ranks", "2", steps=8))
        newest = self.folder / "d" / "step_0000000008"
        shard = newest / "shard_00001.h5"
        if not shard.exists():
            shard = newest / "shard_00000.h5"
        data = bytearray(shard.read_bytes())
        data[len(data) // 2] ^= 4
        shard.write_bytes(data)
        _, text = self.complete(self.line("d", "--ranks", "2", steps=12))
        self.assertIn("WARNING     passed over d/step_0000000008", text)
        self.assertIn(shard.name, text)
        self.assertIn("tensor ", text)
        self.assertIn("steps       7 to 12", text)
        self.reference("--ranks", "2", steps=12)
        self.expect_same("d", "whole")
        # A damaged manifest of the newest, and then of all: never a silent start from nothing.
        manifest = self.folder / "d" / "step_0000000012" / "manifest.json"
        manifest.write_text(manifest.read_text().replace("consumed_samples", "consumed_sampleX"))
        _, text = self.complete(self.line("d", "--ranks", "2", steps=14))
        self.assertIn("passed over d/step_0000000012", text)
        self.assertIn("manifest.json cannot be used: it was changed", text)
        self.assertEqual(self.committed("d"), [12, 14])  # saved again
        for step in self.committed("d"):
            (self.folder / "d" / f"step_{step:010}" / "manifest.json").write_text("{}")
        _, text = self.complete(self.line("d", "--ranks", "2", steps=20), status=2)
        self.assertIn("no valid checkpoint", text)

    def test_the_same_line_goes_on_until_nothing_is_left(self):
        line = self.line("d", steps=100_000)
        with self.start(line) as process:
            for text in process.stderr:
                if text.startswith("saved"):
                    break
            process.send_signal(10)  # SIGUSR1
            message = process.stderr.read()
            self.assertEqual(process.wait(timeout=60), 75, message)
        self.assertIn("run the same command", message)
        last = self.committed("d")[-1]
        _, text = self.complete(self.line("d", "--ranks", "2", steps=last + 3))
        self.assertIn(f"steps       {last + 1} to {last + 3}", text)
        _, text = self.complete(self.line("d", steps=last + 3))
        self.assertIn("nothing is left to train", text)

    def test_two_runs_cannot_share_a_folder(self):
        with self.start(self.line("d", steps=100_000)) as process:
            for text in process.stderr:
                if text.startswith("saved"):
                    break
            _, text = self.complete(self.line("d", steps=100_000), status=2)
            process.kill()
            process.communicate()
        self.assertIn("another run saves in d", text)


if __name__ == "__main__":
    unittest.main()
