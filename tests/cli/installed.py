"""Checks of an installed tree, however it was put there: the program runs with the files next to it."""

import gzip
import os
import pathlib
import shutil
import subprocess

import clean_root
import program

# Libraries that every Linux host has in its own version: glibc's and the kernel's.
HOST_LIBRARIES = r"^(lib(c|m|dl|rt|pthread|util|resolv|anl)\.so|/lib.*/ld-linux|linux-vdso)"


class InstalledTest(program.ProgramTest):
    def run_there(self, *command, status=0):
        """Runs a command without the variables that name folders of libraries; returns its output."""
        done = subprocess.run([*map(str, command)], cwd=self.folder, env={"PATH": os.environ["PATH"]},
                              capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual(done.returncode, status, f"{command}\n{done.stdout}\n{done.stderr}")
        return done.stdout + done.stderr

    def check_program(self, command):
        """It trains on two thread ranks, and finds its modules and configurations. `command` starts it."""
        train = self.check_training(lambda *words: self.run_there(command, *words), program.TEXT)
        if os.environ.get("MPIEXEC", "").startswith("/") and self.built("trifold_mpi.so"):
            self.assertIn("dp 2 x pp 1 x tp 1, MPI ranks",
                          self.run_there(os.environ["MPIEXEC"], "-n", "2", command, *train))
        if self.built("trifold_cuda.so") and not shutil.which("nvidia-smi"):
            self.assertIn("no driver", self.run_there(command, *train, "--device", "cuda", status=2))

    def check_training(self, run, text):
        """run(ARGUMENTS...) runs the program and returns its output; returns the arguments of a training run."""
        train = ["pretrain", *program.SMALL, "--data-path", text, "--train-iters", "2"]
        self.assertRegex(run("--version"), r"^trifold \d")
        self.assertIn("dp 2 x pp 1 x tp 1, thread ranks", run(*train, "--ranks", "2"))
        self.assertIn("stage", run("plan", "--config", "gpt-7.5b.cfg"))
        return train

    def check_in_clean_root(self, packages, put, *command, environment=()):
        """The program trains in a root that has only the files of these packages. put(ROOT) adds it, `command` starts it."""
        if not clean_root.can_run():
            print("mounts are not permitted here: the program is not tried in a root of its own")
            return
        root = clean_root.CleanRoot(self.folder / "clean", packages)
        put(root.folder)
        shutil.copy(program.TEXT, root.folder / "tmp" / "text.txt")

        def run(*words):
            done = root.run(*command, *words, environment=environment)
            self.assertEqual(done.returncode, 0, f"{words}\n{done.stdout}\n{done.stderr}")
            return done.stdout + done.stderr

        self.check_training(run, "/tmp/text.txt")

    def built(self, module):
        return (pathlib.Path(os.environ["TRIFOLD_BUILD"]) / "lib" / module).exists()

    def check_share(self, share):
        """The manual page renders without warnings, and bash takes the completion."""
        page = gzip.decompress((share / "man" / "man1" / "trifold.1.gz").read_bytes())
        if shutil.which("groff"):
            done = subprocess.run(["groff", "-man", "-ww", "-Tascii", "-P-cbou"], input=page, capture_output=True,
                                  timeout=60, check=True)
            self.assertEqual(done.stderr, b"")
            text = done.stdout.decode()
            self.assertIn("\n   Optimizer\n", text)
            self.assertIn("--num-layers N", text)
            self.assertIn("EXIT STATUS", text)
        else:
            print("groff is missing (package groff-base): the manual page is not rendered")
        completion = share / "bash-completion" / "completions" / "trifold"
        offered = self.run_there("bash", "-c", f". {completion}; COMP_WORDS=(trifold pretr); COMP_CWORD=1; _trifold; "
                                 "echo ${COMPREPLY[*]}")
        self.assertEqual(offered, "pretrain\n")

    def check_documents(self, folder):
        for name in ("README.md", "LICENSE", "docs/operate.md", "docs/pictures/step.svg"):
            self.assertTrue((folder / name).is_file(), name)
