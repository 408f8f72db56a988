"""Helpers for tests of killed runs: starting, killing and resuming them, and inspecting what is left."""

import os
import pathlib
import random
import shutil
import subprocess
import time

from program import TRIFOLD, ProgramTest

ROUNDS = int(os.environ.get("TRIFOLD_CRASH_ROUNDS", "6"))
SEED = int(os.environ.get("TRIFOLD_CRASH_SEED", "1"))
STEPS = 40
AT_ONCE = 4  # runs side by side
PHASES = ["folder-made", "laid-out", "half-written", "shard-written", "view-written", "manifest-written", "committed",
          "latest-written", "old-moved-away", "done"]
KILLED = -9


class KillTest(ProgramTest):
    def line(self, save, *more, steps=STEPS):
        """The command that is killed: it saves every second step, keeps two, and goes on by itself."""
        raise NotImplementedError

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
                if not prefix:
                    self.assertIn(status, (0, KILLED), text)
                kills += status != 0
                if status == 0:
                    break
                before = self.check_folder(save, before)
            self.complete(self.line(save, *more), prefix)
            self.expect_same(save, "whole")
            self.expect_only_checkpoints(save)
            shutil.rmtree(self.folder / save)
        return kills

    def expect_only_checkpoints(self, save):
        """Nothing is left of saves that were cut short."""
        names = sorted(p.name for p in (self.folder / save).iterdir())
        self.assertEqual(names, ["LATEST", *(f"step_{step:010}" for step in self.committed(save))])

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

    def kill_at(self, phase, more, reference):
        """Killed in this phase of a save: what was committed is there, and the run goes on to the same end."""
        save = f"{phase}_{reference}"
        # The fourth save: there are old ones, and one is removed.
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
