"""Who asks for the newest checkpoint of a folder gets it, or an error that names what is damaged and the way on."""

import re
import shutil
import unittest

from program import TEXT, ProgramTest

STEP, OLDER = "step_0000000006", "step_0000000004"


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def flip_all_over(path):
    """A bit in every tensor, because a command reads only those that it needs."""
    data = bytearray(path.read_bytes())
    for at in range(97, len(data), 97):
        data[at] ^= 1
    path.write_bytes(data)


def cut(path, part):
    path.write_bytes(path.read_bytes()[:int(path.stat().st_size * part)])


def take_from_older(path):
    shutil.copyfile(path.parent.parent / OLDER / path.name, path)


# What happens to a file of the newest checkpoint, by the part of it that the message must name.
MANIFEST = {"flipped": flip, "cut": lambda path: cut(path, 0.5), "empty": lambda path: cut(path, 0), "missing": lambda path: path.unlink(),
            "of an older step": take_from_older}
SHARD = {"flipped": flip_all_over, "cut": lambda path: cut(path, 0.9), "empty": lambda path: cut(path, 0), "missing": lambda path: path.unlink(),
         "of an older step": take_from_older}


class Newest(ProgramTest):
    def damaged(self, name, damage):
        """A copy of the run `whole`, damaged."""
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        shutil.copytree(self.folder / "whole", self.folder / "run")
        damage(self.folder / "run" / STEP / name if name != "LATEST" else self.folder / "run" / name)

    def check_refused(self, command, *words):
        for output in ("out", "out.csv", "out.safetensors", "out.onnx"):
            path = self.folder / output
            shutil.rmtree(path, ignore_errors=True)
            path.unlink(missing_ok=True)
        _, message = self.trifold(*command, status=2)
        for word in words:
            self.assertIn(word, message)
        self.assertRegex(message, rf"the newest complete checkpoint before it is run/{OLDER}: name that one to use it; --auto-resume goes back")
        self.assertNotIn("json.exception", message)

    def check_commands(self, readers, lookers, resume, shard):
        """`readers` need the tensors of the newest checkpoint, `lookers` only its manifest."""
        for how, damage in MANIFEST.items():
            self.damaged("manifest.json", damage)
            for command in [*readers, *lookers]:
                with self.subTest(manifest=how, command=command):
                    self.check_refused(command, STEP)
        for how, damage in SHARD.items():
            self.damaged(shard, damage)
            for command in readers:
                with self.subTest(shard=how, command=command):
                    self.check_refused(command, STEP, shard)
            with self.subTest(shard=how):
                report, _ = self.trifold("inspect", "run", "--verify", status=1)
                self.assertIn(shard, report)
        self.damaged("manifest.json", lambda path: shutil.rmtree(path.parent))
        for command in [*readers, *lookers]:
            with self.subTest(command=command, gone=STEP):
                self.check_refused(command, f"run/{STEP}, the newest checkpoint according to run/LATEST, is gone")
        self.check_fall_back(resume, shard)

    def check_fall_back(self, resume, shard):
        """--auto-resume alone goes back, and says so."""
        for name, damage, words in (("manifest.json", flip, f"passed over run/{STEP}: "), (shard, flip_all_over, f"passed over run/{STEP}: "),
                                    ("manifest.json", lambda path: shutil.rmtree(path.parent), f"run/{STEP}, the newest checkpoint "
                                     "according to run/LATEST, is gone")):
            self.damaged(name, damage)
            with self.subTest(auto_resume=name):
                _, message = self.trifold(*resume, "--save", "run", "--auto-resume")
                self.assertRegex(message, rf"(?m)^WARNING +{re.escape(words)}")
                self.assertRegex(message, r"(?m)^steps +5 to 8")
        # What LATEST says besides that does not matter.
        for text in (b"", b"step_\xff", OLDER.encode()):
            self.damaged("LATEST", lambda path, text=text: path.write_bytes(text))
            self.trifold("inspect", "run", "--verify")

    def test_a_recommender(self):
        (self.folder / "clicks.csv").write_text("label,I,a,b\n" + "".join(f"{i % 2},{i % 9},x{i % 7},y{i % 5}\n" for i in range(400)))
        self.trifold("preprocess", "--input", "clicks.csv", "--output", "data", "--label", "label", "--dense", "I", "--sparse", "a,b")
        run = ["recommend", "--train-data", "data", "--global-batch-size", 32, "--embedding-dim", 4, "--bottom-mlp", "8-4", "--top-mlp", "8-1",
               "--threads-per-rank", 1]
        self.trifold(*run, "--train-iters", 6, "--save", "whole", "--save-interval", 2)
        shard = sorted((self.folder / "whole" / STEP).glob("shard_*"))[0].name
        data = ["--data", "data"]
        more = [*run, "--train-iters", 8]
        self.check_commands([["score", "--load", "run", *data, "--output", "out.csv"], ["evaluate", "--load", "run", *data],
                             ["convert", "--load", "run", "--save", "out.safetensors"], ["convert", "--load", "run", "--save", "out.onnx"],
                             [*more, "--load", "run"], [*more, "--load", "run", "--finetune"]],
                            [["inspect", "run"], ["inspect", "run", "--verify"], ["inspect", "run/" + OLDER, "--diff", "run"],
                             ["reshard", "--load", "run", "--save", "out"]], more, shard)

    def test_a_language_model(self):
        self.pretrain("--train-iters", 6, "--save", "whole", "--save-interval", 2)
        shard = sorted((self.folder / "whole" / STEP).glob("shard_*"))[0].name
        more = ["pretrain", *"--num-layers 2 --hidden-size 32 --num-attention-heads 2 --seq-length 32 --micro-batch-size 2 --lr 1e-3".split(),
                "--global-batch-size", 4, "--lr-decay-style", "constant", "--split", "90,10,0", "--threads-per-rank", 1, "--data-path", TEXT,
                "--train-iters", 8]
        self.check_commands([["generate", "--load", "run", "--prompt", "To be", "--max-new-tokens", 2],
                             ["evaluate", "--load", "run", "--data-path", TEXT, "--split", "90,10,0", "--eval-iters", 1],
                             ["convert", "--load", "run", "--save", "out"], ["reshard", "--load", "run", "--save", "out"],
                             [*more, "--load", "run"], [*more, "--load", "run", "--finetune"]],
                            [["inspect", "run"], ["inspect", "run", "--verify"]], more, shard)


if __name__ == "__main__":
    unittest.main()
