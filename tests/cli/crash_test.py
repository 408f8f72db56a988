"""Runs that are killed, and disks that are full: what was committed stays, and the run goes on bit for bit.

  crash_test.py                    a short version, minutes
  TRIFOLD_CRASH_ROUNDS=200 ...     the long one; TRIFOLD_CRASH_SEED=N another one. A failure names its seed and round.
"""

import concurrent.futures
import os
import pathlib
import random
import shutil
import subprocess
import time
import unittest

from program import SMALL, TEXT, TRIFOLD, ProgramTest

ROUNDS = int(os.environ.get("TRIFOLD_CRASH_ROUNDS", "6"))
SEED = int(os.environ.get("TRIFOLD_CRASH_SEED", "1"))
MPIEXEC = os.environ.get("MPIEXEC", "")
HAS_MPI = bool(MPIEXEC) and "NOTFOUND" not in MPIEXEC
STEPS = 40
AT_ONCE = 4  # runs side by side
PHASES = ["folder-made", "laid-out", "half-written", "shard-written", "view-written", "manifest-written", "committed",
          "latest-written", "old-moved-away", "done"]
KILLED = -9


def small_with(*replaced):
    kept = []
    for name, value in zip(SMALL[::2], SMALL[1::2]):
        if name not in replaced:
            kept += [name, value]
    return kept


class Crash(ProgramTest):
    def line(self, save, *more, steps=STEPS):
        return [TRIFOLD, "pretrain", *small_with(), "--data-path", str(TEXT), "--train-iters", str(steps), "--save", str(save),
                "--save-interval", "2", "--save-retain", "2", "--auto-resume", "--hidden-dropout", "0.1", *more]

    def start(self, line, prefix=(), **options):
        environment = dict(os.environ, **options.pop("environment", {}))
        return subprocess.Popen([*prefix, *line], cwd=self.folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                text=True, errors="replace", env=environment, start_new_session=True, **options)

    def complete(self, line, prefix=(), timeout=200, status=0, **options):
        with self.start(line, prefix, **options) as process:
            _, text = process.communicate(timeout=timeout)
        if status is not None:
            self.assertEqual(process.returncode, status, text)
        return process.returncode, text

    def committed(self, save):
        """Steps of the folders that are called like checkpoints."""
        folder = self.folder / save
        names = [p.name for p in folder.iterdir()] if folder.exists() else []
        return sorted(int(n[5:]) for n in names if n.startswith("step_") and n[5:].isdigit())

    def check_folder(self, save, before):
        """After a kill: whatever was committed before, or newer ones instead; each of them whole."""
        steps = self.committed(save)
        if before:
            self.assertTrue(steps, "all checkpoints are lost")
            self.assertGreaterEqual(steps[-1], before[-1], "the newest checkpoint is lost")
            self.assertGreaterEqual(len(steps), min(2, len(before)), "fewer than two are left")
        for step in steps:
            self.trifold("inspect", f"{save}/step_{step:010}", "--verify")
        return steps

    def expect_same(self, save, reference):
        out, _ = self.trifold("inspect", reference, "--diff", save)
        self.assertIn("are bitwise equal", out)
        self.assertNotIn("differ", out.splitlines()[-1])

    def reference(self, *more, prefix=(), steps=STEPS):
        self.complete(self.line("whole", *more, steps=steps), prefix)

    def kill_rounds(self, rounds, more=(), prefix=()):
        """Kills the run again and again, at random moments, until it has reached its end; then once more."""
        rng = random.Random(SEED)
        started = time.monotonic()
        self.reference(*more, prefix=prefix)
        whole = time.monotonic() - started
        kills = games = 0
        while kills < rounds:
            save = f"game{games}"
            games += 1
            before, status = [], None
            for _ in range(100):
                if kills >= rounds:
                    break
                with self.start(self.line(save, *more), prefix) as process:
                    try:
                        process.wait(timeout=rng.uniform(0.1, 0.9) * whole)
                    except subprocess.TimeoutExpired:
                        self.kill_all(process)
                    _, text = process.communicate(timeout=60)
                status = process.returncode
                kills += status != 0
                if status == 0:
                    break
                before = self.check_folder(save, before)
            self.complete(self.line(save, *more), prefix)
            self.expect_same(save, "whole")
            shutil.rmtree(self.folder / save)
        return kills

    def kill_all(self, process):
        """kill -9 of the process and of all that it has started."""
        os.killpg(process.pid, 9)
        if process.args[0] == TRIFOLD:
            return
        # The launcher's processes may have groups of their own.
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if os.readlink(entry / "cwd") == str(self.folder) and int(entry.name) != os.getpid():
                    os.kill(int(entry.name), 9)
            except OSError:
                pass

    def test_killed_at_random_moments(self):
        self.assertGreaterEqual(self.kill_rounds(ROUNDS, ["--ranks", "2", "--zero-stage", "1"]), ROUNDS)

    def test_killed_at_random_moments_while_saving_in_the_background(self):
        self.assertGreaterEqual(self.kill_rounds(ROUNDS // 2, ["--ranks", "2", "--async-save"]), ROUNDS // 2)

    @unittest.skipUnless(HAS_MPI, "mpiexec is missing")
    def test_processes_killed_at_random_moments(self):
        os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                          OMPI_MCA_rmaps_base_oversubscribe="1")
        self.kill_rounds(max(2, ROUNDS // 3), ["--distributed-timeout-minutes", "1"], [MPIEXEC, "-n", "2"])

    def kill_at(self, phase, more, reference):
        """Killed in this phase of a save: what was committed is there, and the run goes on to the same end."""
        save = f"{phase}_{reference}"
        # The fourth save: there are old ones, and one goes.
        writers = 2 if phase in ("laid-out", "half-written", "shard-written") else 1
        times = 4 if phase != "old-moved-away" else 2
        when = f"{phase}:{(times - 1) * writers + 1}"
        self.complete(self.line(save, *more, steps=12), status=KILLED, environment={"TRIFOLD_TEST_KILL_AT": when})
        committed = self.check_folder(save, [2, 4])
        expected = 8 if PHASES.index(phase) >= PHASES.index("committed") else 6
        self.assertEqual(committed[-1], expected, phase)
        _, text = self.complete(self.line(save, *more, steps=12))
        self.assertIn(f"steps       {expected + 1} to 12", text, phase)
        self.expect_same(save, reference)
        names = sorted(p.name for p in (self.folder / save).iterdir())
        self.assertEqual(names, ["LATEST", "step_0000000010", "step_0000000012"], phase)
        shutil.rmtree(self.folder / save)

    def test_killed_at_each_phase_of_a_save(self):
        ranks = ["--ranks", "2", "--zero-stage", "1"]  # both of them write
        modes = {"at_once": ranks, "behind": [*ranks, "--async-save"]}
        for reference, more in modes.items():
            self.complete(self.line(reference, *more, steps=12))
        # Most of the time goes by in waiting for the disk, so several runs go on at a time.
        cases = [(phase, more, reference) for reference, more in modes.items() for phase in PHASES]
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for case, done in [(case, pool.submit(self.kill_at, *case)) for case in cases]:
                with self.subTest(phase=case[0], mode=case[2]):
                    done.result()

    def limited(self, policy, number, limits, before):
        """No file may have more bytes than that: an error, no crash, and what is committed stays."""
        save, limit = f"{policy}{number}", limits[number]
        # By a program, not between fork and exec: this process has threads.
        status, text = self.complete(self.line(save, "--ranks", "2", "--on-save-error", policy, steps=8),
                                     ["prlimit", f"--fsize={limit}:{limit}"], status=None)
        self.assertEqual(status, 1, text)
        self.assertIn(f"saving {save}/step_", text)
        self.assertIn("File too large", text)
        # With 'continue' the run gets to its end, and only the last save ends it.
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
        cases = [(policy, number) for policy in ("stop", "continue") for number in range(len(limits))]
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
        self.assertIn("go on with the same line", message)
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
        self.assertIn("another run saves its checkpoints in d", text)


if __name__ == "__main__":
    unittest.main()
