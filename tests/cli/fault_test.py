"""Faults of one rank among eight: the faulty rank is named, and all processes end within the time-out plus 5 s.

  fault_test.py                    a short selection, seconds
  TRIFOLD_FAULT_MATRIX=1 ...       every fault in every phase, of threads and of processes, and 10 000 clean steps
"""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import time
import unittest

from program import CLICKS, SMALL, TEXT, TRIFOLD, ProgramTest

MPIEXEC = os.environ.get("MPIEXEC", "")
HAS_MPI = bool(MPIEXEC) and "NOTFOUND" not in MPIEXEC
WHOLE = bool(os.environ.get("TRIFOLD_FAULT_MATRIX"))
RANKS = 8
TIMEOUT = 6  # seconds for which ranks wait for each other
GRACE = 5  # seconds within which all must be gone after that
START = 60  # seconds that eight processes may take to start on a loaded machine
MESHES = {"data": ["--zero-stage", 1], "tensor": ["--tp", 2], "pipeline": ["--pp", 2],
          "all": ["--tp", 2, "--pp", 2]}
# Phase: the mesh for it, and the step, or the number of times that the rank gets there.
PHASES = {"start": ("data", 1), "data": ("data", 2), "load": ("data", 1), "forward": ("all", 2), "tensor": ("tensor", 2),
          "backward": ("all", 2), "pipeline": ("pipeline", 2), "reduce": ("all", 2), "update": ("all", 3),
          "evaluate": ("all", 2), "save": ("all", 2), "half-written": ("data", 2)}
EARLY = ("start", "load")  # before the first line is logged


class Outcome:
    """How a run ended: `silence` is the longest time in which it said nothing, `left` what still lives after the launcher."""

    def __init__(self, status, text, silence, left):
        self.status, self.text, self.silence, self.left = status, text, silence, left


class FaultTest(ProgramTest):
    """What a scenario of faults needs; other tests may derive from it."""

    def line(self, *more, mesh="data", save="d"):
        """A run of eight ranks that evaluates and saves every 2 steps; options in `more` take the place of its own."""
        options = dict(zip(SMALL[::2], SMALL[1::2]))
        options.update({"--global-batch-size": 16, "--train-iters": 40, "--eval-interval": 2, "--eval-iters": 1,
                        "--save": save, "--save-interval": 2, "--log-interval": 1,
                        "--distributed-timeout-minutes": TIMEOUT / 60})
        given = [*MESHES[mesh], *more]
        options.update(zip(given[::2], given[1::2]))
        return [TRIFOLD, "pretrain", "--data-path", TEXT, *[word for option in options.items() for word in option]]

    def environment(self, fault=None):
        environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                           OMPI_MCA_rmaps_base_oversubscribe="1")
        if fault:
            environment["TRIFOLD_TEST_FAULT"] = fault
        return environment

    def launch(self, line, mpi):
        line = [MPIEXEC, "-n", str(RANKS), *line] if mpi else [*line, "--ranks", RANKS]
        return [str(word) for word in line]

    def one_differs(self, line, rank, change):
        """The processes of `line`, of which that of one rank gets `change(line)`."""
        words = [MPIEXEC]
        for count, part in ((rank, line), (1, change(list(line))), (RANKS - rank - 1, line)):
            if count > 0:
                words += [*([":"] if len(words) > 1 else []), "-n", count, *part]
        return [str(word) for word in words]

    def run_fault(self, line, mpi, fault=None):
        return self.watch(self.launch(line, mpi), self.environment(fault))

    def watch(self, line, environment=None, limit=TIMEOUT + GRACE + START, at_line=None):
        """Runs it to its end; `at_line(process, text)` hears all that was said whenever there is more. An Outcome."""
        log = self.folder / "said.txt"
        with open(log, "wb") as file, subprocess.Popen(line, cwd=self.folder, env=environment or self.environment(),
                                                       stdout=file, stderr=file, start_new_session=True) as process:
            started = last = time.monotonic()
            size = silence = 0
            while process.poll() is None and time.monotonic() - started < limit:
                time.sleep(0.02)
                now = log.stat().st_size
                if now != size:
                    silence = max(silence, time.monotonic() - last)
                    size, last = now, time.monotonic()
                    if at_line:
                        at_line(process, log.read_text(errors="replace"))
            silence = max(silence, time.monotonic() - last)
            ended = process.poll() is not None
            for _ in range(20):  # the launcher may be gone a little before its children
                left = self.processes()
                if not left or not ended:
                    break
                time.sleep(0.05)
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            process.kill()
        return Outcome(process.returncode if ended else None, log.read_text(errors="replace"), silence, left)

    def processes(self):
        """Those that work in the scratch folder: the program's, and the launcher's."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                state = (entry / "stat").read_text().rpartition(") ")[2][0]
                if os.readlink(entry / "cwd") == str(self.folder) and state not in "ZX":
                    found.append(int(entry.name))
            except OSError:
                pass
        return found

    def expect_end(self, outcome, rank=None, status=None, within=TIMEOUT + GRACE, early=False, first=True):
        """It failed, nobody is left, it was in time, and the message names this rank, `first` of all."""
        self.assertIsNotNone(outcome.status, f"it did not end\n{outcome.text}")
        self.assertEqual(outcome.left, [], f"processes are left\n{outcome.text}")
        self.assertNotEqual(outcome.status, 0, outcome.text)
        if status is not None:
            self.assertEqual(outcome.status, status, outcome.text)
        # The time-out begins when a rank waits, which is when the last line was logged or later.
        self.assertLess(outcome.silence, within + (START if early else 0), outcome.text)
        if rank is not None:
            match = re.search(r"(?m)^trifold: (.*)", outcome.text)
            self.assertTrue(match and re.search(rf"{'^' if first else ''}rank {rank}\b", match[1]), outcome.text)

    def good_saves(self, save="d"):
        """The steps that were committed; each of them must be whole."""
        folder = self.folder / save
        names = sorted(p.name for p in folder.iterdir()) if folder.exists() else []
        steps = [int(name[5:]) for name in names if name.startswith("step_") and name[5:].isdigit()]
        for step in steps:
            self.trifold("inspect", f"{save}/step_{step:010}", "--verify")
        return steps

    def check_fault(self, kind, phase, mpi, rank=3):
        mesh, step = PHASES[phase]
        outcome = self.run_fault(self.line("--flight-dir", "flight", mesh=mesh), mpi, f"{rank}:{kind}:{phase}:{step}")
        # The launcher reports a killed process; it does not know the rank.
        self.expect_end(outcome, None if kind == "kill" else rank, early=phase in EARLY, first=kind != "error")
        expected = [2] if phase in ("update", "half-written") else []
        self.assertEqual(self.good_saves(), expected, outcome.text)
        if phase not in EARLY and kind != "error":
            self.check_flight(rank, kind, outcome)
        return outcome

    def check_flight(self, rank, kind, outcome):
        """The files that the ranks left name the faulty one, also where the launcher killed all."""
        report, _ = self.trifold("inspect", "--flight", "flight")
        if kind == "kill":  # milliseconds later the launcher kills ranks that have not come either
            return self.assertRegex(report, rf"(?m)^rank \d+ .* never .*$\n(  rank .*\n)*  rank {rank} .* in no call", outcome.text)
        self.assertRegex(report, rf"\A\S+: {RANKS} of {RANKS} ranks\nrank {rank} \(host \S+, pid \d+\) never ", outcome.text)
        self.assertRegex(report, rf"\n  rank {rank} \(host [^\n]*\n(  rank \d+ [^\n]*\n){{{RANKS - 1}}}\Z", outcome.text)


class FaultMatrix:
    """Every kind of fault in each of `phases`; a part of a FaultTest."""

    @unittest.skipUnless(WHOLE, "part of the matrix")
    def test_matrix_of_threads(self):
        self.check_matrix(("hang", "error"), mpi=False)

    @unittest.skipUnless(WHOLE and HAS_MPI, "part of the matrix")
    def test_matrix_of_processes(self):
        self.check_matrix(("hang", "stop", "kill", "error"), mpi=True)

    def check_matrix(self, kinds, mpi):
        for kind in kinds:
            for phase in self.phases:
                with self.subTest(kind=kind, phase=phase):
                    self.setUp()
                    self.check_fault(kind, phase, mpi)


class Faults(FaultMatrix, FaultTest):
    phases = list(PHASES)

    def test_a_hung_thread_is_named(self):
        outcome = self.check_fault("hang", "forward", mpi=False)
        self.assertRegex(outcome.text, r"trifold: rank 3 \(host \S+, pid \d+, thread \d+\) waits for no other rank; its last call")
        self.assertRegex(outcome.text, r"  rank 0 \(host \S+, pid \d+, thread \d+\) waits \d+\.\d s in .*, for (world )?ranks? ")

    @unittest.skipUnless(HAS_MPI, "mpiexec is missing")
    def test_a_stopped_process_is_named(self):
        outcome = self.check_fault("stop", "forward", mpi=True)
        self.assertRegex(outcome.text, r"trifold: rank 3 \(host \S+, pid \d+\) does not answer")
        self.assertEqual(outcome.text.count("trifold: "), 1, outcome.text)

    @unittest.skipUnless(HAS_MPI, "mpiexec is missing")
    def test_a_killed_process_is_named_beside_the_log(self):
        """Hydra kills the other ranks before they can say anything."""
        dead = self.folder / "log.jsonl.dead"
        outcome = self.run_fault(self.line("--train-iters", 2, "--log-json", "log.jsonl"), True)
        self.assertEqual(outcome.status, 0, outcome.text)
        self.assertFalse(dead.exists())
        outcome = self.run_fault(self.line("--log-json", "log.jsonl", save="other"), True, "3:kill:forward:2")
        self.expect_end(outcome)
        for _ in range(100):
            if dead.exists() and "rank 3" in dead.read_text():
                break
            time.sleep(0.05)
        lines = dead.read_text().splitlines()
        self.assertRegex(lines[0], r"^# ranks that ended without a message")
        # More ranks than cores: what the launcher kills milliseconds later may be noticed first.
        pattern = r"(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6} UTC rank 3 \(host \S+, pid \d+\) ended without a message"
        self.assertRegex("\n".join(lines[1:]), pattern)
        dead.write_text("of somebody else")
        self.expect_end(self.run_fault(self.line("--log-json", "log.jsonl", save="third"), True, "3:kill:forward:2"))
        time.sleep(0.5)
        self.assertEqual(dead.read_text(), "of somebody else")

    @unittest.skipUnless(HAS_MPI, "mpiexec is missing")
    def test_a_problem_of_one_process_ends_all(self):
        line = self.line()
        for rank, change, part in [(3, lambda l: [*l[:3], "nowhere.txt", *l[4:]], "nowhere.txt"),
                                   (0, lambda l: [*l, "--nonsense"], "nonsense"),
                                   (7, lambda l: [*l, "--log-json", "/proc/none/log.jsonl"], "/proc/none/log.jsonl")]:
            with self.subTest(rank=rank):
                outcome = self.watch(self.one_differs(line, rank, change))
                self.expect_end(outcome, rank, status=2, early=True)
                self.assertEqual(outcome.text.count("trifold: "), 1, outcome.text)
                self.assertIn(part, outcome.text)
                self.assertEqual(self.good_saves(), [])

    @unittest.skipUnless(HAS_MPI, "mpiexec is missing")
    def test_a_problem_of_all_processes_is_reported_once(self):
        line = self.line()
        line[3] = "nowhere.txt"
        outcome = self.watch(self.launch(line, mpi=True))
        self.expect_end(outcome, status=2, early=True)
        self.assertEqual(outcome.text.count("trifold: "), 1, outcome.text)
        self.assertIn("nowhere.txt", outcome.text)
        self.assertNotIn("trifold: rank", outcome.text)

    @unittest.skipUnless(HAS_MPI, "mpiexec is missing")
    def test_a_later_error_of_all_processes_is_reported_once(self):
        self.trifold(*self.line("--train-iters", 2)[1:], "--ranks", 8)
        shard = sorted((self.folder / "d" / "step_0000000002").glob("shard_*"))[0]
        data = bytearray(shard.read_bytes())
        data[len(data) // 2] ^= 4
        shard.write_bytes(data)
        outcome = self.watch(self.launch(self.line("--load", "d", save="other"), mpi=True))
        self.expect_end(outcome, early=True)
        self.assertEqual(outcome.text.count("trifold: "), 1, outcome.text)
        self.assertIn(shard.name, outcome.text)

    @unittest.skipUnless(HAS_MPI, "mpiexec is missing")
    def test_sigterm_ends_processes_that_wait_at_the_start(self):
        line = self.launch(self.line("--distributed-timeout-minutes", 10), mpi=True)
        with subprocess.Popen(line, cwd=self.folder, env=self.environment("3:hang:start"), start_new_session=True,
                              stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
            own = []
            while len(own) < RANKS:
                time.sleep(0.05)
                own = [pid for pid in self.processes() if os.readlink(f"/proc/{pid}/exe") == os.path.realpath(TRIFOLD)]
            time.sleep(2)
            for pid in own:
                with contextlib.suppress(ProcessLookupError):  # mpiexec may have ended it when the first was gone
                    os.kill(pid, signal.SIGTERM)
            process.communicate(timeout=START)
        self.assertNotEqual(process.returncode, 0)
        self.assertEqual(self.processes(), [])

    def check_quit(self, mpi):
        """SIGQUIT prints what each rank does, and the run goes on."""
        asked = []

        def ask(process, text):
            if "step      5/" in text and not asked:
                pids = [pid for pid in self.processes() if os.readlink(f"/proc/{pid}/exe") == os.path.realpath(TRIFOLD)]
                os.kill(pids[0], signal.SIGQUIT)
                asked.append(pids)

        outcome = self.watch(self.launch(self.line("--train-iters", 400, "--save-interval", 400, "--eval-interval", 400), mpi),
                             at_line=ask)
        self.assertEqual(outcome.status, 0, outcome.text)
        self.assertEqual(outcome.text.count("trifold: SIGQUIT: what each rank does:"), 1, outcome.text)
        for rank in range(RANKS):
            self.assertRegex(outcome.text, rf"\n  rank {rank} \(host \S+, pid \d+.*; in step \d+\S*.*; last event \d+\.\d s ago")

    def test_sigquit_shows_what_threads_do(self):
        self.check_quit(mpi=False)

    @unittest.skipUnless(HAS_MPI, "mpiexec is missing")
    def test_sigquit_shows_what_processes_do(self):
        self.check_quit(mpi=True)

    def test_time_outs_are_learned(self):
        """A rank that hangs after some steps is found long before --distributed-timeout-minutes."""
        line = self.line("--distributed-timeout-minutes", 10, "--timeout-floor-seconds", 2, "--timeout-factor", 5)
        outcome = self.run_fault(line, False, "3:hang:forward:20")
        self.expect_end(outcome, 3, within=2 + GRACE)
        self.assertRegex(outcome.text, r"gave up after \d+(\.\d+)? (s|ms) ")

    def check_pause(self, mpi):
        """All ranks are stopped together for longer than the time-out: the run goes on, with the same losses."""
        short = ["--distributed-timeout-minutes", 0.05, "--train-iters", 30]  # 3 s
        self.watch(self.launch(self.line(*short, "--log-json", "whole.jsonl", save="w"), mpi))
        paused = []

        def pause(process, text):
            if "step     10/" not in text or paused:
                return
            pids = self.processes()
            for number in (signal.SIGSTOP, signal.SIGCONT):
                for pid in pids:
                    os.kill(pid, number)
                if number == signal.SIGSTOP:
                    time.sleep(4)  # longer than the time-out
            paused.append(len(pids))

        outcome = self.watch(self.launch(self.line(*short, "--log-json", "paused.jsonl", save="p"), mpi), at_line=pause)
        self.assertEqual(len(paused), 1, outcome.text)
        self.assertGreaterEqual(paused[0], RANKS if mpi else 1)
        self.assertEqual(outcome.status, 0, outcome.text)
        self.assertEqual(len(self.losses("whole.jsonl")), 30)
        self.assertEqual(self.losses("whole.jsonl"), self.losses("paused.jsonl"))

    def test_threads_that_were_paused_together_go_on(self):
        self.check_pause(mpi=False)

    @unittest.skipUnless(WHOLE and HAS_MPI, "part of the matrix")
    def test_processes_that_were_paused_together_go_on(self):
        self.check_pause(mpi=True)

    def run_slow_disk(self, mpi, seconds, timeout=TIMEOUT, more=()):
        """A save in which the disk takes so long for the file of rank 3."""
        line = self.line("--distributed-timeout-minutes", timeout / 60, "--train-iters", 4)
        return self.run_fault([*line, *more], mpi, f"3:slow-fsync:half-written:1:{seconds}")

    def check_slow_disk(self, mpi, seconds, timeout=TIMEOUT, more=()):
        """Longer than the time-out, within the limit for disks: the run goes on."""
        self.assertGreater(seconds, timeout)
        outcome = self.run_slow_disk(mpi, seconds, timeout, more)
        self.assertEqual(outcome.status, 0, outcome.text)
        self.assertGreater(outcome.silence, seconds - 1, outcome.text)
        self.assertEqual(self.good_saves(), [2, 4])

    def test_threads_wait_for_a_slow_disk(self):
        self.check_slow_disk(mpi=False, seconds=4, timeout=2)

    @unittest.skipUnless(HAS_MPI, "mpiexec is missing")
    def test_processes_wait_for_a_slow_disk(self):
        self.check_slow_disk(mpi=True, seconds=TIMEOUT + 2)

    @unittest.skipUnless(WHOLE, "part of the matrix")
    def test_a_save_in_the_background_waits_for_a_slow_disk(self):
        for mpi in (False, True) if HAS_MPI else (False,):
            with self.subTest(mpi=mpi):
                self.setUp()
                self.check_slow_disk(mpi, TIMEOUT + 4, more=["--async-save"])

    @unittest.skipUnless(WHOLE, "part of the matrix")
    def test_a_disk_that_is_too_slow_is_named(self):
        for mpi in (False, True) if HAS_MPI else (False,):
            with self.subTest(mpi=mpi):
                self.setUp()
                outcome = self.run_slow_disk(mpi, 20 * TIMEOUT)
                self.expect_end(outcome, 3, within=6 * TIMEOUT + GRACE)
                self.assertRegex(outcome.text, r"trifold: rank 3 \(host .*\) has waited \d+\.\d s for the disk to write "
                                 rf"\S*shard_00003\S*\. Rank \d gave up after {6 * TIMEOUT} s \(6 times the time-out")
                self.assertEqual(self.good_saves(), [])

    @unittest.skipUnless(WHOLE, "part of the matrix")
    def test_no_alarm_in_many_steps(self):
        line = self.line("--train-iters", 10_000, "--eval-interval", 2000, "--save-interval", 5000, "--log-interval", 1000,
                         "--global-batch-size", 8, "--micro-batch-size", 1, "--hidden-size", 16, "--seq-length", 16)
        outcome = self.watch(self.launch(line, mpi=False), limit=3600)
        self.assertEqual(outcome.status, 0, outcome.text)


# Kind, phase, mesh and step of numbers that are not finite, and which rank finds them: the rank that writes them (with
# ZeRO each rank writes its slice), else all ranks in the loss of the next step.
NOT_FINITE = [("nan-weight", "update", "data", 2), ("nan-weight", "evaluate", "data", 2), ("nan-weight", "save", "data", 2),
              ("nan-moment", "update", "data", 2), ("nan-moment", "save", "data", 2), ("nan-weight", "update", "data", 3),
              ("nan-weight", "update", "tensor", 2), ("nan-weight", "save", "pipeline", 2),
              ("nan-moment", "evaluate", "all", 2), ("nan-weight", "evaluate", "all", 4)]


class NotFinite(FaultTest):
    """What one rank has that is not finite is never saved as good."""

    def check_not_finite(self, kind, phase, mesh, step, mpi, rank=3):
        outcome = self.run_fault(self.line("--flight-dir", "flight", mesh=mesh), mpi, f"{rank}:{kind}:{phase}:{step}")
        self.expect_end(outcome)
        if mesh == "data" and step % 2 == 0:
            self.assertRegex(outcome.text, rf"rank {rank}: after step {step}, element \d+ of tensor \S+, box .*, is nan"
                             rf"|step {step}: .*rank {rank} differs from .* \(element \d+ on rank {rank} is nan\)")
            self.assertEqual(self.good_saves(), list(range(2, step, 2)))
        # A run resumes from everything that was committed.
        saves = self.good_saves()
        for save in saves:
            line = self.line("--train-iters", save + 1, "--load", f"d/step_{save:010}", save=f"from_{save}")
            self.trifold(*line[1:], "--ranks", 8)
        return saves

    def test_a_weight_of_a_thread(self):
        self.check_not_finite(*NOT_FINITE[0], mpi=False)

    def test_a_moment_of_a_thread(self):
        self.check_not_finite(*NOT_FINITE[4], mpi=False)

    @unittest.skipUnless(WHOLE, "part of the matrix")
    def test_matrix_of_threads(self):
        for case in NOT_FINITE:
            with self.subTest(case=case):
                self.setUp()
                self.check_not_finite(*case, mpi=False)

    @unittest.skipUnless(WHOLE and HAS_MPI, "part of the matrix")
    def test_matrix_of_processes(self):
        for case in NOT_FINITE:
            with self.subTest(case=case):
                self.setUp()
                self.check_not_finite(*case, mpi=True)


class RecommenderFaults(FaultMatrix, FaultTest):
    """A recommender's ranks fail as a transformer's do."""

    phases = [phase for phase in PHASES if phase != "pipeline"]  # it sends no activations from stage to stage

    def line(self, *more, mesh=None, save="d", placement="row"):
        """By row every rank has a part of every table, and so something to save."""
        return [TRIFOLD, "recommend", *CLICKS, "--placement", ",".join([placement] * 4), "--train-iters", 40, "--eval-interval", 2,
                "--save", save, "--save-interval", 2, "--log-interval", 1, "--distributed-timeout-minutes", TIMEOUT / 60, *more]

    def test_a_hung_thread_is_named(self):
        outcome = self.check_fault("hang", "backward", mpi=False)
        self.assertRegex(outcome.text, r"trifold: rank 3 \(host \S+, pid \d+, thread \d+\) waits for no other rank; its last call")

    @unittest.skipUnless(HAS_MPI, "mpiexec is missing")
    def test_a_stopped_process_is_named(self):
        outcome = self.check_fault("stop", "update", mpi=True)
        self.assertRegex(outcome.text, r"trifold: rank 3 \(host \S+, pid \d+\) does not answer")

    def test_a_rank_that_cannot_read_is_named(self):
        self.check_fault("error", "data", mpi=False)

    def test_a_copy_that_differs_is_named_and_not_saved(self):
        for placement, tensor in (("row", "top.0.weight"), ("replicated", "embedding.C1.weight")):
            with self.subTest(tensor=tensor):
                self.setUp()
                outcome = self.run_fault(self.line(placement=placement), False, f"3:flip:update:4:{tensor}")
                self.expect_end(outcome, status=1)
                self.assertRegex(outcome.text, rf"trifold: step 4: .*: rank 3 differs from ranks 0-2 and 4-7: param/{tensor}")
                self.assertEqual(self.good_saves(), [2])

    def test_values_that_are_not_finite_are_not_saved(self):
        for kind, part in (("nan-weight", r"param/embedding\.C1\.weight"), ("nan-moment", r"rowwise_adagrad_sum/embedding\.C1\.weight")):
            with self.subTest(kind=kind):
                self.setUp()
                outcome = self.run_fault(self.line(), False, f"3:{kind}:save:4:embedding.")
                self.expect_end(outcome, status=1)
                self.assertRegex(outcome.text, rf"rank 3: after step 4, element \d+ of tensor {part}, box .*, is nan")
                self.assertEqual(self.good_saves(), [2])


if __name__ == "__main__":
    unittest.main()
