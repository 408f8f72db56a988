"""Commands that write, ended by signals at random moments: nothing of a user's is touched, a signal that can be handled leaves nothing
behind, and what a kill leaves is gone after the next start of the same command.

  output_kills_test.py          a selection
  TRIFOLD_WHOLE=1 ...           more than 200 ends; TRIFOLD_CRASH_SEED=N other moments
"""

import os
import random
import shutil
import signal
import subprocess
import time
import unittest

from commands import JOBS, CommandsTest
from outputs_test import changed, state_of
from program import TRIFOLD, WHOLE

SEED = int(os.environ.get("TRIFOLD_CRASH_SEED", "1"))
ROUNDS = 14 if WHOLE else 1  # of each signal and each command
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT) if WHOLE else (signal.SIGKILL, signal.SIGTERM)
STOPPED = 75  # a training run that a signal has stopped


class OutputKills(CommandsTest):
    def setUp(self):
        super().setUp()
        self.prepare(samples=20000)
        (self.folder / "tmp").mkdir()
        # A user's files, called nearly like temporary ones.
        for name in ("new.partial", "new.tmp-0123456789abcdef", "tmp/trifold.tmp-0123456789abcdef"):
            (self.folder / name).mkdir()
            (self.folder / name / "notes").write_text("precious\n")
        self.rng = random.Random(SEED)

    def start(self, name, *more):
        line, outputs = JOBS[name]
        words = [*line, *[word for pair in outputs.items() for word in pair], *more]
        return subprocess.Popen([TRIFOLD, *map(str, words)], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                text=True, errors="replace", env=dict(os.environ, TMPDIR="tmp"))

    def complete(self, name, *more):
        with self.start(name, *more) as process:
            _, text = process.communicate(timeout=100)
        self.assertEqual(process.returncode, 0, text)

    def names(self):
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*")}

    def expect_untouched(self, before, case):
        self.assertEqual(changed(before, self.folder), [], case)

    def test_ends_at_random_moments(self):
        before = state_of(self.folder)
        self.kept = self.names()
        ends = 0
        for name, (_, outputs) in JOBS.items():
            started = time.monotonic()
            self.complete(name)
            seconds = time.monotonic() - started
            whole = self.names()
            self.remove_new(whole)
            for number in range(ROUNDS):
                for end in SIGNALS:
                    case = f"{name}, {end.name}, round {number}"
                    with self.start(name) as process:
                        time.sleep(self.rng.uniform(0, seconds))
                        process.send_signal(end)
                        _, text = process.communicate(timeout=100)
                    self.assertIn(process.returncode, (0, STOPPED, 1, -end), f"{case}\n{text}")
                    ends += process.returncode != 0
                    self.expect_untouched(before, case)
                    left = self.names() - whole
                    if end != signal.SIGKILL:
                        self.assertFalse({path for path in left if ".tmp-" in path}, f"{case}\n{text}")
                    # The next start removes what is left, wherever the first one was ended.
                    self.remove_finished(outputs)
                    self.complete(name)
                    # Event files of killed runs are whole up to their end, and stay.
                    more = {name for name in self.names() - whole if ".tfevents." not in name}
                    self.assertEqual(more, set(), case)
                    self.expect_untouched(before, case)
                    self.remove_new(whole)
        print(f"{ends} commands were ended")
        self.assertGreater(ends, 200 if WHOLE else 8)

    def remove_new(self, whole):
        for path in sorted(whole - self.kept, reverse=True):
            target = self.folder / path
            if target.is_dir():
                for events in target.glob("*.tfevents.*"):
                    events.unlink()
                target.rmdir()
            elif target.exists():
                target.unlink()

    def remove_finished(self, outputs):
        """A finished output, which a user would keep, and not start its command again."""
        for output in outputs.values():
            for name in (output, f"{output}_text_document.bin", f"{output}_text_document.idx"):
                target = self.folder / name
                shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)


if __name__ == "__main__":
    unittest.main()
