"""--tensorboard-dir: event files have every number of the log, as an independent reader and, where it is installed, TensorBoard itself
read them."""

import importlib.util
import itertools
import math
import unittest

from event_files import Events, crc32c, skip_without_protozero
from program import CLICKS, ProgramTest

EXPERTS = ["--num-experts", 4, "--moe-router-topk", 2, "--disable-bias-linear"]


def numbers_of(path, value):
    """(path, number) of every number in a value of the log."""
    if isinstance(value, (bool, int, float)):
        yield path, float(value)
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from numbers_of(f"{path}/{key}", member)
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from numbers_of(f"{path}/{member['name'] if isinstance(member, dict) else index}", member)


def numbers_of_log(lines):
    """{tag: [(step, number)]} that the lines of steps and evaluations of a log stand for."""
    found = {}
    for line in lines:
        evaluated = "lr" not in line
        for key, value in line.items():
            if key == "step" or value is None:
                continue
            tag = f"valid_{key}" if evaluated and not key.startswith("valid_") else key
            for path, number in numbers_of(tag, value):
                found.setdefault(path, []).append((line["step"], number))
    return found


class TensorBoard(ProgramTest):
    def setUp(self):
        super().setUp()
        skip_without_protozero(self)

    def event_files(self, folder="tb"):
        return sorted((self.folder / folder).glob("events.out.tfevents.*"))

    def expect_numbers(self, scalars, lines):
        """The scalars are the numbers of the log, rounded to f32; steps in order."""
        expected = numbers_of_log(lines)
        self.assertEqual({tag for tag in scalars if "/" not in tag or tag in expected}, set(expected))
        for tag, points in expected.items():
            self.assertEqual([step for step, _ in scalars[tag]], [step for step, _ in points], tag)
            for (_, found), (_, wanted) in zip(scalars[tag], points):
                self.assertTrue(math.isclose(found, wanted, rel_tol=1e-6, abs_tol=1e-37), (tag, found, wanted))

    def test_checksum(self):
        self.assertEqual(crc32c(b"123456789"), 0xE3069283)  # the published check value

    def test_language_model(self):
        self.pretrain("--train-iters", 6, *EXPERTS, "--eval-interval", 3, "--eval-iters", 1, "--save", "d", "--log-json", "log.jsonl",
                      "--tensorboard-dir", "tb/run")
        (path,) = self.event_files("tb/run")
        events = Events(path)
        self.assertEqual(events.version, "brain.Event:2")
        self.assertEqual(events.restarts, [1])
        self.assertEqual(events.times, sorted(events.times))
        self.expect_numbers(events.scalars, self.log())
        for tag in ("loss", "valid_loss", "lr", "grad_norm", "loss_scale", "tokens_per_second", "samples_per_second", "step_seconds", "mfu",
                    "resident_bytes", "expert_loads/0", "expert_loads/1", "start/planned_bytes"):
            self.assertIn(tag, events.scalars)
        ((step, text),) = events.texts["start"]
        self.assertEqual(step, 0)
        self.assertIn("| options.num_layers | 2 |\n", text)
        self.assertEqual(events.texts["saved"], [(6, "d/step_0000000006")])

    def test_recommender(self):
        self.trifold("recommend", *CLICKS, "--train-iters", 6, "--eval-interval", 3, "--log-json", "log.jsonl", "--tensorboard-dir", "tb")
        (path,) = self.event_files()
        events = Events(path)
        self.expect_numbers(events.scalars, self.log())
        for tag in ("loss", "lr", "samples_per_second", "valid_auc", "valid_log_loss", "valid_calibration"):
            self.assertIn(tag, events.scalars)

    def test_a_resumed_run_drops_what_comes_again(self):
        """The first run does six steps and saves after the fourth; the second begins with the fifth."""
        run = ["--save-interval", 4, "--tensorboard-dir", "tb"]
        self.pretrain("--train-iters", 6, *run, "--save", "d")
        self.pretrain("--train-iters", 7, *run, "--load", "d/step_0000000004", "--save", "e")
        one, two = map(Events, self.event_files())
        self.assertEqual([step for step, _ in one.scalars["loss"]], [1, 2, 3, 4, 5, 6])
        self.assertEqual(two.restarts, [5])
        self.assertEqual([step for step, _ in two.scalars["loss"]], [5, 6, 7])
        self.assertEqual(one.scalars["loss"][4:], two.scalars["loss"][:2])

    def test_a_rollback_drops_the_steps_that_it_takes_back(self):
        self.spiky_text()
        self.spiky("--on-loss-spike", "rollback", "--save", "d", "--save-interval", 10, "--log-json", "log.jsonl", "--tensorboard-dir", "tb")
        spike, = self.events("log.jsonl", "loss_spike")
        (path,) = self.event_files()
        events = Events(path)
        self.assertEqual(events.restarts, [1, spike["to_step"] + 1])
        self.assertEqual([step for step, _ in events.texts["loss_spike"]], [spike["step"]])

    def test_a_finished_run_that_is_repeated_writes_no_file(self):
        run = ["--train-iters", 2, "--save", "d", "--auto-resume", "--tensorboard-dir", "tb"]
        self.pretrain(*run)
        _, message = self.pretrain(*run)
        self.assertIn("nothing is left to train", message)
        self.assertEqual(len(self.event_files()), 1)

    def test_warnings_are_texts(self):
        (self.folder / "bad.jsonl").write_text("".join('{"text": "the cat sat on the mat"}\n' * 400) + "{broken\n")
        _, message = self.pretrain("--train-iters", 2, "--on-bad-record", "skip", "--json-key", "text", "--tensorboard-dir", "tb",
                                   "--split", "1,0,0", data="bad.jsonl")
        warned = [line.removeprefix("WARNING").strip() for line in message.splitlines() if line.startswith("WARNING")]
        self.assertTrue(warned, message)
        (path,) = self.event_files()
        self.assertEqual([text for _, text in Events(path).texts["warning"]], warned)

    def test_folders_that_cannot_be_written(self):
        (self.folder / "file").write_text("")
        for folder in ("file", "file/tb", "/proc/tb"):
            _, message = self.pretrain("--train-iters", 1, "--tensorboard-dir", folder, status=2)
            self.assertIn(f"--tensorboard-dir {folder}", message)

    def test_the_losses_are_those_without(self):
        self.pretrain("--train-iters", 4, "--log-json", "plain.jsonl")
        self.pretrain("--train-iters", 4, "--log-json", "shown.jsonl", "--tensorboard-dir", "tb")
        self.assertEqual(self.losses("plain.jsonl"), self.losses("shown.jsonl"))

    @unittest.skipUnless(importlib.util.find_spec("tensorboard"), "TensorBoard is not installed: pip install tensorboard")
    def test_tensorboard_loads_every_scalar(self):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        run = [*EXPERTS, "--eval-interval", 2, "--eval-iters", 1, "--tensorboard-dir", "tb", "--log-json", "log.jsonl"]
        self.pretrain("--train-iters", 4, *run, "--save-interval", 2, "--save", "d")
        self.pretrain("--train-iters", 6, *run, "--load", "d/step_0000000002", "--save", "e")
        loaded = EventAccumulator(str(self.folder / "tb"), size_guidance={"scalars": 0, "tensors": 0})
        loaded.Reload()
        scalars = {tag: [(event.step, event.value) for event in loaded.Scalars(tag)] for tag in loaded.Tags()["scalars"]}
        lines = self.log()
        resumed = max(index for index, line in enumerate(lines) if line["step"] == 3 and "loss" in line)
        kept = [*itertools.takewhile(lambda line: line["step"] < 3, lines), *lines[resumed:]]
        self.expect_numbers(scalars, kept)
        self.assertIn("start", loaded.Tags()["tensors"])
        self.assertIn(b"options.num_layers", loaded.Tensors("start")[-1].tensor_proto.string_val[0])


if __name__ == "__main__":
    unittest.main()
