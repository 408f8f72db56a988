"""No output ever replaces an input, or anything else that the command did not make: every output of every command, on every file of
a folder, named as it is, by a link, by a hard link, within a folder, and by the name that a prefix makes.

  outputs_test.py               a selection in which every output meets every way
  TRIFOLD_WHOLE=1 ...           all outputs with all files in all ways, also with --overwrite
"""

import itertools
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest
import zlib

from commands import JOBS, OF_THE_RUN, ONE, TABLES, UNWRITTEN, CommandsTest
from program import SMALL, TRIFOLD, WHOLE

NAMES_FILES = re.compile(r"^ +--([a-z-]+) (\S*(?:FILE|DIR|PATH|PREFIX)\S*)", re.MULTILINE)
WAYS = ("itself", "by another path", "by a link", "by a hard link", "within")


def places(folder):
    return sorted(path for path in folder.rglob("*") if not path.is_symlink())


def state_of(folder):
    """The identity of every file and folder, and the content of files."""
    return {str(path.relative_to(folder)): (path.stat().st_ino, zlib.crc32(path.read_bytes()) if path.is_file() else None)
            for path in places(folder)}


def changed(before, folder):
    """What was there before and is not as it was."""
    now = state_of(folder)
    return [path for path, state in before.items() if now.get(path) != state]


class Outputs(CommandsTest):
    prepared = None  # the inputs, made once

    def setUp(self):
        super().setUp()
        if Outputs.prepared is None:
            self.prepare()
            Outputs.prepared = pathlib.Path(tempfile.mkdtemp(prefix="trifold_cli_"))
            self.addClassCleanup(shutil.rmtree, Outputs.prepared)
            shutil.copytree(self.folder, Outputs.prepared, dirs_exist_ok=True)
        else:
            shutil.copytree(Outputs.prepared, self.folder, dirs_exist_ok=True)

    def run_job(self, name, options, *more):
        line, outputs = JOBS[name]
        words = [*line, *[word for pair in {**outputs, **options}.items() for word in pair], *more]
        done = subprocess.run([TRIFOLD, *map(str, words)], cwd=self.folder, capture_output=True, text=True, errors="replace",
                              timeout=100, check=False)
        return done.returncode, done.stderr

    def test_every_option_that_names_a_file_is_known(self):
        """The jobs have every output of every command."""
        inputs = {"--load", "--data-path", "--train-data", "--valid-data", "--data", "--dictionaries-of", "--config", "--tokenizer-model",
                  "--input", "--hardware", "--costs", "--schedule", "--schedule-costs", "--auto-layout", "--init-weights",
                  "--changed-since", "--diff", "--flight", "--lines", "--model", "--arrays", "--tokenizer-merges", "--train-data-path",
                  "--valid-data-path", "--task", "--data-schedule", "--chat-template", "--dpo-reference-model"}
        wanted = {}
        for name, (line, outputs) in JOBS.items():
            own_name = ("plan-recommender", "evaluate-task", "rehearse-task", "rehearse-recommender")
            command = name if name in own_name else "evaluate-recommender" if "recommender" in name else line[0]
            wanted.setdefault(command, set()).update(outputs)
        wanted["rehearse"] |= wanted["rehearse-task"] | wanted["rehearse-recommender"]
        wanted["evaluate"] |= wanted["evaluate-recommender"] | wanted["evaluate-task"]  # its help has all
        commands = re.findall(r"^  ([a-z-]+) ", self.trifold("--help")[0], re.MULTILINE)
        for command in commands:
            if command in ("completion", "man-page"):
                continue
            named = {"--" + option for option, _ in NAMES_FILES.findall(self.trifold(command, "--help")[0])}
            of_run = OF_THE_RUN | {"--predictions"} if command.startswith(("plan", "rehearse")) else set()
            self.assertEqual(named - inputs - UNWRITTEN - of_run, wanted.get(command, set()), command)

    def test_every_job_writes_its_outputs(self):
        for name, (line, outputs) in JOBS.items():
            with self.subTest(job=name):
                self.remove("new")
                before = state_of(self.folder)
                status, text = self.run_job(name, {})
                self.assertEqual(status, 0, text)
                for output in outputs.values():
                    self.assertTrue(list(self.folder.glob(output + "*")), output)
                self.assertEqual(changed(before, self.folder), [])
                # The same command again replaces its own files; --save, --output and actions in PyTorch's format excepted.
                again = [value for option, value in outputs.items() if option == "--schedule-csv"]
                new_folder = name.startswith("preprocess") or name == "convert"
                more = ["--auto-resume"] if line[0] in ("pretrain", "recommend", "finetune") else []
                if not new_folder:
                    status, text = self.run_job(name, {}, *more)
                    self.assertEqual(status, 2 if again else 0, text)
                    if again:
                        self.assertIn("exists and has no mark of this command", text)
                        status, text = self.run_job(name, {}, "--overwrite")
                        self.assertEqual(status, 0, text)
        self.remove("new")

    def ways(self, target, option):
        """Values of the option by which an output would reach a file or folder; with what makes and removes a link for it."""
        relative = str(target.relative_to(self.folder))
        ending, value = "", relative
        if option == "--output-prefix":  # other names are out of its reach
            ending = "_text_document.bin"
            value = re.sub(r"_text_document\.(bin|idx)$", "", relative)
        link = self.folder / f"link{ending}"
        if value != relative or not ending:
            yield "itself", value, None, None
            yield "by another path", f"days/../{value}", None, None
        yield "by a link", "link", lambda: link.symlink_to(target), link.unlink
        if target.is_dir():
            yield "within", relative + "/new", None, None
        else:
            yield "by a hard link", "link", lambda: os.link(target, link), link.unlink

    def cases(self):
        # The pair that tokenize has made may be made again.
        every = [(job, option, target, way) for job, (_, outputs) in JOBS.items() for option in outputs
                 for target in places(self.folder) if not (job == "tokenize" and target.name.startswith("pair"))
                 for way in self.ways(target, option)]
        if WHOLE:
            return every
        # Each output in some ways, and each time with another file.
        chosen, turn = [], itertools.count()
        for job, (_, outputs) in JOBS.items():
            for option in outputs:
                for way in itertools.islice(itertools.cycle(WAYS), next(turn), next(turn) + 2):
                    fitting = [case for case in every if case[0] == job and case[1] == option and case[3][0] == way]
                    chosen += fitting and [fitting[next(turn) * 7 % len(fitting)]]
        return chosen

    def test_nothing_is_replaced(self):
        before = state_of(self.folder)
        tried = 0
        for job, option, target, (way, name, make, undo) in self.cases():
            if make:
                make()
            status, text = self.run_job(job, {option: name})
            if undo:
                undo()
            tried += 1
            case = f"{job} {option} {name}, {target.name} {way}"
            self.assertEqual(changed(before, self.folder), [], case)
            if len(state_of(self.folder)) == len(before):
                self.assertEqual(status, 2, f"{case}\n{text}")
                continue
            # A folder that the command does not read, or of checkpoints, may get new files, unless its files belong together.
            self.assertEqual(status, 0, f"{case}\n{text}")
            self.assertTrue(target.is_dir(), case)
            self.assertFalse(target.name in ("clicks", "model") or target.name.startswith("step_"), case)
            self.assertTrue(target.name not in JOBS[job][0] or f"--load {target.name}" in " ".join(JOBS[job][0]), case)
            self.remove_new(before)
        self.assertGreater(tried, 2000 if WHOLE else 60)

    def remove_new(self, before):
        for path in sorted(state_of(self.folder).keys() - before.keys(), reverse=True):
            target = self.folder / path
            target.rmdir() if target.is_dir() else target.unlink()

    def test_inputs_are_not_replaced_with_overwrite(self):
        """The files and folders that a command names, and the files within."""
        before = state_of(self.folder)
        for job, (line, outputs) in JOBS.items():
            named = [word for word in line if (self.folder / word).exists() and word != line[0]]
            targets = [path for word in named for path in [self.folder / word, *places(self.folder / word)]]
            for option, target in itertools.product(outputs, targets if WHOLE else targets[:1]):
                for way, value, make, undo in self.ways(target, option):
                    if make:
                        make()
                    status, text = self.run_job(job, {option: value}, "--overwrite")
                    if undo:
                        undo()
                    case = f"{job} {option} {value}, {target} {way}"
                    self.assertEqual(changed(before, self.folder), [], case)
                    if len(state_of(self.folder)) == len(before):
                        self.assertEqual(status, 2, f"{case}\n{text}")
                    self.remove_new(before)

    def test_names_that_a_prefix_makes(self):
        text = (self.folder / "text.txt").read_bytes()
        for ending in ("bin", "idx"):
            (self.folder / f"a_text_document.{ending}").write_bytes(text)
            before = state_of(self.folder)
            for more in ([], ["--overwrite"]):
                _, err = self.trifold("tokenize", "--input", f"a_text_document.{ending}", "--output-prefix", "a", *more, status=2)
                self.assertIn(f"--output-prefix a_text_document.{ending} is --input a_text_document.{ending}", err)
            _, err = self.trifold("tokenize", "--input", "text.txt", "--output-prefix", "a", status=2)
            self.assertIn("exists and has no mark of this command", err)
            self.assertEqual(changed(before, self.folder), [])
            (self.folder / f"a_text_document.{ending}").unlink()
        # The pair of an earlier command.
        self.trifold("tokenize", "--input", "text.txt", "--output-prefix", "pair")
        _, err = self.trifold("pretrain", *SMALL, "--data-path", "pair_text_document", "--vocab-size", "256", "--train-iters", "1",
                              "--log-json", "pair_text_document.bin", status=2)
        self.assertIn("is --data-path pair_text_document.bin", err)

    def test_a_foreign_folder_with_the_name_of_a_temporary_one(self):
        for name in ("new.partial", "new.tmp-0123456789abcdef", "new.csv.tmp-0123456789abcdef"):
            (self.folder / name).mkdir()
            (self.folder / name / "day.csv").write_bytes((self.folder / "day.csv").read_bytes())
        before = state_of(self.folder)
        self.trifold("preprocess", "--input", "new.partial/day.csv", "--output", "new", "--label", "click", "--sparse", "user")
        self.assertEqual(self.run_job("score", {})[0], 0)
        self.assertEqual(changed(before, self.folder), [])

    def test_a_save_never_writes_through_links(self):
        (self.folder / "victim").write_text("precious\n")
        for name in ("LATEST", "BEST", "OWNER"):
            (self.folder / "s").mkdir()
            (self.folder / "s" / name).symlink_to("../victim")
            for job in ("recommend", "pretrain", "reshard", "convert back"):
                status, text = self.run_job(job, {"--save": "s"})
                self.assertEqual(status, 2, text)
                self.assertIn(f"s/{name} is a link to ../victim", text)
            self.assertEqual([path.name for path in (self.folder / "s").iterdir()], [name])
            self.remove("s")
        self.assertEqual((self.folder / "victim").read_text(), "precious\n")

    def test_reshard_does_not_replace_the_checkpoint_that_it_reads(self):
        before = state_of(self.folder)
        for load, save in (("gpt", "./gpt"), ("gpt/step_0000000002", "gpt")):
            _, err = self.trifold("reshard", "--load", load, "--save", save, "--no-save-optim", status=2)
            self.assertRegex(err, "the new checkpoint would replace .*gpt/step_0000000002, which this command reads")
        self.assertEqual(changed(before, self.folder), [])

    def test_two_outputs_of_one_name(self):
        _, err = self.trifold("plan", *JOBS["plan"][0][1:], "--json", "a.svg", "--svg", "./a.svg", status=2)
        self.assertIn("--json a.svg is also --svg ./a.svg: name two", err)

    def test_two_preprocess_with_one_output(self):
        """One of them succeeds as a whole, the other is refused."""
        columns = ["--label", "click", "--sparse", "user", "--threads", "1"]
        rows = (self.folder / "day.csv").read_text().splitlines(keepends=True)
        for name, copies in (("a.csv", 60), ("b.csv", 10)):
            (self.folder / name).write_text(rows[0] + "".join(rows[1:]) * copies)
            self.trifold("preprocess", "--input", name, "--output", "whole_" + name, *columns)
        for number in range(40 if WHOLE else 6):
            line = [TRIFOLD, "preprocess", "--output", "o", *columns, "--input"]
            both = []
            for name in ("a.csv", "b.csv"):
                both.append(subprocess.Popen([*line, name], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
                time.sleep(number % 5 * 0.004)
            texts = [process.communicate(timeout=60)[1] for process in both]
            statuses = [process.returncode for process in both]
            self.assertEqual(sorted(statuses), [0, 2], texts)
            whole = self.folder / ("whole_a.csv" if statuses[0] == 0 else "whole_b.csv")
            for path in whole.iterdir():
                self.assertTrue((self.folder / "o" / path.name).read_bytes() == path.read_bytes(), path.name)
            self.assertFalse(list(self.folder.glob("o.*")))
            self.remove("o")

    def test_a_log_continues_after_a_kill_in_the_middle_of_a_line(self):
        self.trifold("recommend", "--train-data", "clicks", *TABLES, "--train-iters", "2", "--save", "r", "--log-json", "log")
        whole = (self.folder / "log").read_text()
        (self.folder / "log").write_text(whole + whole[:20])
        self.trifold("recommend", "--train-data", "clicks", *TABLES, "--train-iters", "4", "--load", "r", "--save", "r", "--log-json", "log")
        self.assertEqual([line["step"] for line in self.log("log")], [1, 2, 3, 4])
        _, err = self.trifold("evaluate", "--load", "gpt", "--data-path", "text.txt", "--log-json", "train.tsv", *ONE, status=2)
        self.assertIn("--log-json train.tsv exists and is not a log of Trifold", err)


if __name__ == "__main__":
    unittest.main()
