"""The folder of --save: for one run, and for one process at a time."""

import json
import os
import shutil
import subprocess
import time
import unittest
import zlib

from kills import KillTest
from program import CLICKS, SMALL, TEXT, TRIFOLD

LONG = 100_000  # steps of a run that does not end by itself


class SaveFolder(KillTest):
    def line(self, save, *more, steps=4, command="pretrain"):
        what = {"pretrain": [*SMALL, "--data-path", str(TEXT)], "recommend": CLICKS}[command]
        return [TRIFOLD, command, *what, "--train-iters", str(steps), "--save", str(save), *more]

    def refused(self, line, *words):
        _, text = self.complete(line, status=2)
        for word in words:
            self.assertIn(word, text)

    def started(self, line, is_ready):
        """The process of a run, once `is_ready` says so of what it has done."""
        process = self.start(line)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + 100
        while not is_ready():
            self.assertIsNone(process.poll(), "it ended")
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        return process

    def test_two_jobs_cannot_share_a_folder(self):
        for first in ("pretrain", "recommend"):
            saved, unsaved = f"saved_{first}", f"unsaved_{first}"
            # One has already saved, the other has not.
            jobs = [self.started(self.line(saved, "--save-interval", "2", "--save-retain", "2", steps=LONG, command=first),
                                 lambda folder=saved: self.committed(folder)),
                    self.started(self.line(unsaved, steps=LONG, command=first),
                                 lambda folder=unsaved: (self.folder / folder / "OWNER").exists())]
            for folder, job in zip((saved, unsaved), jobs):
                for second in ("pretrain", "recommend"):
                    with self.subTest(first=first, second=second, folder=folder):
                        self.refused(self.line(folder, command=second), f"another run saves in {folder}",
                                     f"(process {job.pid} on host {os.uname().nodename})")
                self.refused(self.line(folder, "--auto-resume", steps=LONG, command=first), f"process {job.pid}")
            for job in jobs:
                self.assertIsNone(job.poll())
                job.kill()
                job.wait()
            # The remaining checkpoints still belong to another run, and the first job's command resumes it.
            self.refused(self.line(saved), f"--save {saved} holds checkpoints of another run")

    def test_a_folder_is_for_one_run(self):
        for command in ("pretrain", "recommend"):
            with self.subTest(command=command):
                d, other = command, command + "_other"
                self.complete(self.line(d, steps=3, command=command))
                self.complete(self.line(other, steps=5, command=command))
                # A fresh run; one that continues from elsewhere; with more steps or fewer.
                for line in (self.line(d, steps=2, command=command), self.line(d, steps=9, command=command),
                             self.line(d, "--load", other, steps=9, command=command)):
                    self.refused(line, f"--save {d} holds checkpoints of another run, the newest of step 3",
                                 "another --save", f"--auto-resume or --load {d}")
                self.assertEqual(self.committed(d), [3])
                # The same run, wherever it was copied.
                shutil.copytree(self.folder / d, self.folder / (d + "_copy"))
                self.complete(self.line(d, "--load", d, steps=4, command=command))
                self.complete(self.line(d, "--auto-resume", steps=5, command=command))
                self.complete(self.line(d, "--load", f"{d}/step_0000000005/", steps=6, command=command))
                self.complete(self.line(d + "_copy", "--load", d, steps=7, command=command))
                self.assertEqual(self.committed(d), [3, 4, 5, 6])
                self.assertEqual(self.committed(d + "_copy"), [3, 7])
                self.refused(self.line(f"{d}/step_0000000005", command=command), "is a checkpoint itself")

    def test_weights_of_another_run_are_a_new_run(self):
        self.complete(self.line("a", steps=2))
        self.complete(self.line("b", "--load", "a", "--finetune", steps=1))
        self.refused(self.line("a", "--load", "b", "--finetune", steps=9), "checkpoints of another run, the newest of step 2")
        self.refused(self.line("a", "--load", "a", "--finetune", steps=9), "--finetune begins at step 0")

    def test_checkpoints_from_before_identities(self):
        self.complete(self.line("d", steps=3))
        manifest = self.folder / "d" / "step_0000000003" / "manifest.json"
        lines = [line for line in manifest.read_text().splitlines() if not line.startswith('"run_id"')]
        text = "\n".join(lines)[:-len('0a1b2c3d"\n}')]
        manifest.write_text(text + f'{zlib.crc32(text.encode()):08x}"\n}}\n')
        self.assertNotIn("run_id", json.loads(manifest.read_text()))
        self.refused(self.line("d", steps=9), "another run (without an identity), the newest of step 3")
        self.complete(self.line("d", "--auto-resume", steps=4))
        self.complete(self.line("d", "--load", "d", steps=5))
        self.assertEqual(self.committed("d"), [3, 4, 5])

    def test_resharding_keeps_the_run(self):
        self.complete(self.line("d", steps=2))
        self.complete(self.line("e", steps=2))
        self.trifold("reshard", "--load", "d", "--save", "half", "--files", 3)
        self.trifold("reshard", "--load", "d", "--save", "half", "--files", 2)
        _, text = self.trifold("reshard", "--load", "d", "--save", "e", "--files", 3, status=2)
        self.assertIn("another run", text)
        self.complete(self.line("d", "--load", "half", steps=3))
        self.assertEqual(self.committed("d"), [2, 3])

    def test_moved_away_under_a_run(self):
        for command in ("pretrain", "recommend"):
            with self.subTest(command=command):
                job = self.started(self.line(command, "--save-interval", "2", "--save-retain", "2", steps=LONG, command=command),
                                   lambda folder=command: self.committed(folder))
                (self.folder / command).rename(self.folder / f"moved_{command}")
                _, text = job.communicate(timeout=100)
                self.assertEqual(job.returncode, 1, text)
                self.assertRegex(text, f"{command} was moved or removed while this run saved into it|No such file or directory")
                self.assertFalse((self.folder / command).exists())
                self.trifold("inspect", f"moved_{command}", "--verify")

    def test_an_old_checkpoint_that_cannot_be_removed_is_a_warning(self):
        prefix = []
        if os.getuid() == 0:  # root ignores permissions, but not this
            prefix = ["setpriv", "--bounding-set", "-dac_override"]
            if not shutil.which(prefix[0]) or subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
                self.skipTest("setpriv cannot be used here")
        for command in ("pretrain", "recommend"):
            with self.subTest(command=command):
                save = f"d_{command}"
                self.complete(self.line(save, "--save-interval", "1", steps=3, command=command))
                old = self.folder / save / "step_0000000001"
                old.chmod(0o555)
                _, text = self.complete(self.line(save, "--save-retain", "2", "--auto-resume", steps=4, command=command), prefix)
                for path in (self.folder / save).iterdir():
                    path.chmod(0o755)
                self.assertRegex(text, "WARNING     the old checkpoint .*step_0000000001.* cannot be removed .*Permission denied")
                self.assertEqual(self.committed(save), [1, 3, 4])  # it stays whole

    def test_names_that_are_no_folder(self):
        (self.folder / "link").symlink_to("nowhere")
        for command in ("pretrain", "recommend"):
            with self.subTest(command=command):
                self.refused(self.line("link", command=command), "link to nowhere, which does not exist")
                self.refused(self.line("link/below", command=command), "link to nowhere, which does not exist")
                self.refused(self.line("n" * 256, command=command), "--save nnn", "a name of 256 bytes is too long; 255")
                self.refused(self.line("n/" * 2040, command=command), "a path of 4080 bytes is too long")
        self.assertEqual(self.files(), ["link"])

    def test_a_newline_in_the_name(self):
        for command in ("pretrain", "recommend"):
            with self.subTest(command=command):
                save = f"a\nb {command}"
                self.complete(self.line(save, steps=2, command=command))
                self.complete(self.line(save, "--auto-resume", steps=3, command=command))
                self.assertEqual(self.committed(save), [2, 3])

    def test_a_first_launch_with_load(self):
        for command in ("pretrain", "recommend"):
            with self.subTest(command=command):
                for load in ("d", "./d/"):
                    self.refused(self.line("d", "--load", load, command=command), "the folder holds no checkpoint yet",
                                 "give --auto-resume instead of --load")
                self.refused(self.line("d", "--load", "d", "--auto-resume", command=command), "leave out --load")


if __name__ == "__main__":
    unittest.main()
