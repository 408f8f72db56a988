"""Hugging Face folders of a run: --save-hf writes what `trifold convert` makes of a checkpoint, in the background and
whole or not at all, and --load takes such a folder on any mesh."""

import json
import os
import shutil
import signal
import struct
import subprocess
import time
import unittest

from program import GOLDEN, SMALL, TEXT, TRIFOLD, WHOLE, ProgramTest

MPIEXEC = os.environ.get("MPIEXEC", "")
HAS_MPI = bool(MPIEXEC) and "NOTFOUND" not in MPIEXEC
MODEL = ("--num-layers", "--hidden-size", "--num-attention-heads")  # options that a config.json has
EXPERTS = ("--swiglu --normalization RMSNorm --disable-bias-linear --position-embedding-type rope "
           "--untie-embeddings-and-output-weights --num-experts 4 --moe-router-topk 2").split()


def mpi(ranks):
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                      OMPI_MCA_rmaps_base_oversubscribe="1")
    return [MPIEXEC, "-n", str(ranks)]


class ModelFolders(ProgramTest):
    def tensors(self, folder):
        """[name] type, shape and bytes of every tensor in the folder's safetensors files."""
        found = {}
        for file in sorted((self.folder / folder).glob("*.safetensors")):
            data = file.read_bytes()
            length = struct.unpack("<Q", data[:8])[0]
            for name, tensor in json.loads(data[8:8 + length]).items():
                if name != "__metadata__":
                    begin, end = (8 + length + offset for offset in tensor["data_offsets"])
                    found[name] = (tensor["dtype"], tensor["shape"], data[begin:end])
        self.assertTrue(found, folder)
        return found

    def config(self, folder):
        return json.loads((self.folder / folder / "config.json").read_text())

    def is_as_converted(self, checkpoint, folder, *more):
        shutil.rmtree(self.folder / "converted", ignore_errors=True)
        self.trifold("convert", "--load", checkpoint, "--save", "converted", *more)
        self.assertEqual(self.tensors("converted"), self.tensors(folder))
        self.assertEqual(self.config("converted"), self.config(folder))

    def from_folder(self, *arguments, **options):
        """Trains the small GPT, whose model a folder gives."""
        kept = []
        for name, value in zip(SMALL[::2], SMALL[1::2]):
            if name not in MODEL and name not in arguments:
                kept += [name, value]
        return self.trifold("pretrain", *kept, "--data-path", TEXT, "--log-interval", 1, *arguments, **options)

    def make_model(self, *more, folder="model"):
        self.pretrain("--train-iters", 2, "--save", "made", *more)
        self.trifold("convert", "--load", "made", "--save", folder)

    def test_saved_models_are_converted_checkpoints(self):
        meshes = {"plain": [], "tp-pp": ["--ranks", 4, "--tp", 2, "--pp", 2], "zero": ["--ranks", 2, "--zero-stage", 3],
                  "experts": ["--ranks", 2, "--ep", 2, *EXPERTS], "cp": ["--ranks", 2, "--cp", 2]}
        for name, more in meshes.items():
            with self.subTest(mesh=name):
                line = ["--train-iters", 6, "--log-interval", 1, *more]
                self.pretrain(*line, "--log-json", "without.jsonl")
                self.pretrain(*line, "--save", name, "--save-interval", 3, "--save-hf", f"hf-{name}", "--save-hf-interval", 3,
                              "--log-json", "with.jsonl")
                self.assertEqual(self.losses("with.jsonl"), self.losses("without.jsonl"))
                self.assertEqual(sorted(p.name for p in (self.folder / f"hf-{name}").iterdir()),
                                 ["hf_iter_0000003", "hf_iter_0000006"])
                for step in (3, 6):
                    self.is_as_converted(f"{name}/step_{step:010}", f"hf-{name}/hf_iter_{step:07}")
                for log in ("with.jsonl", "without.jsonl"):
                    (self.folder / log).unlink()

    @unittest.skipUnless(HAS_MPI, "mpiexec is missing")
    def test_saved_by_processes(self):
        self.pretrain("--train-iters", 4, "--tp", 2, "--save", "run", "--save-interval", 2, "--async-save", "--save-hf", "hf",
                      "--save-hf-interval", 2, "--save-hf-dtype", "bf16", prefix=mpi(2))
        for step in (2, 4):
            self.is_as_converted(f"run/step_{step:010}", f"hf/hf_iter_{step:07}", "--dtype", "bf16")

    def test_keeps_the_newest(self):
        _, text = self.pretrain("--train-iters", 8, "--save", "run", "--save-retain", 2, "--save-hf", "hf", "--save-hf-interval", 2)
        self.assertIn("hf_iter_0000008", text)
        self.assertEqual(sorted(p.name for p in (self.folder / "hf").iterdir()), ["hf_iter_0000006", "hf_iter_0000008"])

    def test_refused_before_the_start(self):
        self.pretrain("--train-iters", 1, "--save", "run")
        hf = ["--train-iters", 2, "--save-hf", "hf", "--save-hf-interval", 1]
        for arguments, part in (
                ([*hf, "--swiglu"], "transformers has no model like this one; the nearest would need"),
                ([*hf, "--hugging-face-family", "llama"], "it would need\n  Llama: --normalization RMSNorm"),
                ([*hf, "--hugging-face-family", "lama"], "--hugging-face-family lama is not known; gpt2, llama"),
                ([*hf[:4]], "--save-hf-interval N"), (["--train-iters", 2, "--save-hf-interval", 1], "--save-hf DIR"),
                ([*hf, "--save", "hf"], "--save-hf hf")):
            _, text = self.pretrain(*arguments, status=2)
            self.assertIn(part, text)
            self.assertFalse((self.folder / "hf").exists(), arguments)
        self.pretrain(*hf)
        _, text = self.pretrain(*hf, status=2)
        self.assertIn("--save-hf hf holds models of another run, for example hf_iter_0000002", text)
        _, text = self.pretrain("--train-iters", 2, "--save-hf", "hf/hf_iter_0000002", "--save-hf-interval", 1, status=2)
        self.assertIn("is a model itself", text)

    def test_models_of_other_runs_are_kept(self):
        """A run replaces and removes no model that it did not write, however it starts."""
        hf = ["--save-hf", "hf", "--save-hf-interval", 1]
        self.pretrain("--train-iters", 2, "--save", "run", "--save-interval", 1, *hf)
        self.pretrain("--train-iters", 2, "--save", "unrelated", "--seed", 5)
        before = {name: self.tensors(f"hf/{name}") for name in ("hf_iter_0000001", "hf_iter_0000002")}
        another = "--save-hf hf holds models of another run"
        for arguments, part in (
                (["--seed", 7, "--save", "new", "--auto-resume", "--save-retain", 2], another),
                (["--load", "unrelated"], another), (["--load", "run", "--finetune"], another),
                (["--load", "hf/hf_iter_0000002", "--finetune", "--auto-resume", "--save", "new"],
                 "--load hf/hf_iter_0000002 is in the folder of --save-hf")):
            with self.subTest(arguments=arguments):
                _, text = self.pretrain("--train-iters", 4, *hf, *arguments, status=2)
                self.assertIn(part, text)
                self.assertFalse((self.folder / "new").exists())
                self.assertEqual({name: self.tensors(f"hf/{name}") for name in before}, before)
        # The run itself goes on; what the user puts there meanwhile is not removed.
        self.pretrain("--train-iters", 3, "--save", "run", "--auto-resume", *hf)
        self.pretrain("--train-iters", 4, "--load", "run", *hf)
        self.assertEqual(len(list((self.folder / "hf").iterdir())), 4)
        shutil.rmtree(self.folder / "hf" / "hf_iter_0000001")
        shutil.copytree(self.folder / "hf" / "hf_iter_0000004", self.folder / "hf" / "hf_iter_0000001")
        (self.folder / "hf" / "hf_iter_0000001" / "trifold_run").unlink()
        _, text = self.pretrain("--train-iters", 5, "--save", "run", "--auto-resume", *hf, status=2)
        self.assertIn(another + ", for example hf_iter_0000001", text)

    def test_a_model_lost_by_a_kill_is_written(self):
        """A resumed run writes the model of its checkpoint's step, even if no step is left."""
        line = ["--save", "run", "--save-interval", 2, "--auto-resume", "--save-hf", "hf", "--save-hf-interval", 2]
        self.pretrain("--train-iters", 4, *line)
        whole = self.tensors("hf/hf_iter_0000004")
        for iterations in (4, 6):
            shutil.rmtree(self.folder / "hf" / "hf_iter_0000004")
            self.pretrain("--train-iters", iterations, *line)
            self.assertEqual(self.tensors("hf/hf_iter_0000004"), whole)
        _, text = self.pretrain("--train-iters", 6, *line)
        self.assertIn("nothing is left to train", text)

    def test_a_run_killed_before_its_first_checkpoint_starts_over(self):
        """The same options and data are the same run, whose models are replaced; another run is refused."""
        line = ["--train-iters", 6, "--save-hf-interval", 2]
        self.pretrain(*line, "--save-hf", "whole")
        whole = {step: self.tensors(f"whole/hf_iter_{step:07}") for step in (2, 4, 6)}
        line += ["--save-hf", "hf", "--save-interval", 6]
        command = [TRIFOLD, "pretrain", *SMALL, "--data-path", str(TEXT), *map(str, line), "--save", "run", "--auto-resume"]
        killed = subprocess.run(command, cwd=self.folder, capture_output=True, timeout=100, check=False,
                                env={**os.environ, "TRIFOLD_TEST_KILL_AT": "folder-made:2"})
        self.assertEqual(killed.returncode, -signal.SIGKILL, killed.stderr)
        self.assertEqual(self.tensors("hf/hf_iter_0000002"), whole[2])
        again = [*line, "--save", "run", "--auto-resume"]
        for more in (["--seed", 5], ["--lr", 0.1]):
            _, text = self.pretrain(*again, *more, status=2)
            self.assertIn("start it over with the same options, --save and --auto-resume", text)
        _, text = self.pretrain(*line, "--save", "run", status=2)
        self.assertIn("holds models of another run", text)
        self.pretrain(*again, "--ranks", 2, "--log-interval", 2)
        self.assertEqual(sorted(p.name for p in (self.folder / "hf").iterdir()), [f"hf_iter_{step:07}" for step in (2, 4, 6)])
        self.trifold("inspect", "run")

    def test_notes_of_saving_know_the_models(self):
        """--save-retain and --on-save-error concern models too."""
        line = ["--train-iters", 2, "--save-retain", 2, "--on-save-error", "continue"]
        _, text = self.pretrain(*line)
        self.assertIn("--save-retain 2 has no effect without --save DIR, or --save-hf DIR", text)
        _, text = self.pretrain(*line, "--save-hf", "hf", "--save-hf-interval", 1)
        self.assertNotIn("has no effect", text)

    def test_a_model_that_cannot_be_written(self):
        """--on-save-error continue goes on when the save cannot begin."""
        line = [TRIFOLD, "pretrain", *SMALL, "--data-path", str(TEXT), "--train-iters", "100000", "--log-interval", "1",
                "--exit-duration-in-mins", "0.1", "--save", "run", "--save-hf", "hf", "--save-hf-interval", "1", "--on-save-error"]
        for choice, status in (("continue", 0), ("stop", 1)):
            shutil.rmtree(self.folder / "moved", ignore_errors=True)
            shutil.rmtree(self.folder / "hf", ignore_errors=True)
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            with subprocess.Popen([*line, choice], cwd=self.folder, stderr=subprocess.PIPE, text=True) as process:
                deadline = time.time() + 60
                while time.time() < deadline and not (self.folder / "hf" / "hf_iter_0000001").exists():
                    time.sleep(0.001)
                (self.folder / "hf").rename(self.folder / "moved")
                text = process.communicate(timeout=100)[1]
            self.assertEqual(process.returncode, status, text[-2000:])
            self.assertIn("restart it with --save-hf naming the folder", text)
            self.assertEqual("a model was not written: " in text, choice == "continue")

    def test_another_config_json_does_not_hide_a_checkpoint(self):
        self.pretrain("--train-iters", 2, "--save", "run")
        (self.folder / "run" / "config.json").write_text('{"train_batch_size": 4}')
        self.pretrain("--train-iters", 3, "--load", "run")
        _, text = self.pretrain("--train-iters", 3, "--save", "run", "--auto-resume")
        self.assertIn("steps       3 to 3", text)
        self.trifold("convert", "--load", "run", "--save", "model")
        step = self.folder / "run" / "step_0000000003"
        for name in ("config.json", "model.safetensors"):
            shutil.copy(self.folder / "model" / name, step / name)
        _, text = self.pretrain("--train-iters", 4, "--load", step, status=2)
        self.assertIn("is both a checkpoint (", text)

    @unittest.skipUnless(HAS_MPI, "mpiexec is missing")
    def test_hosts_with_other_weights(self):
        self.make_model()
        for rank in range(2):
            (self.folder / f"at{rank}").mkdir()
            shutil.copytree(self.folder / "model", self.folder / f"at{rank}" / "model")
        weights = self.folder / "at1" / "model" / "model.safetensors"
        data = bytearray(weights.read_bytes())
        data[-1] ^= 1
        weights.write_bytes(data)
        script = self.folder / "rank.sh"
        script.write_text('#!/bin/sh\ncd "at${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" && exec "$@"\n')
        script.chmod(0o755)
        _, text = self.from_folder("--train-iters", 1, "--load", "model", "--tp", 2, prefix=[*mpi(2), str(script)], status=2)
        self.assertIn("the model of --load", text)

    def test_killed_while_saving(self):
        """No kill leaves half a model under its name, and the next run removes the rest and goes on."""
        line = [TRIFOLD, "pretrain", *SMALL, "--data-path", str(TEXT), "--ranks", "2", "--tp", "2", "--train-iters", "8",
                "--save", "run", "--save-interval", "2", "--save-hf", "hf", "--save-hf-interval", "2", "--auto-resume"]
        reference = [part if part not in ("run", "hf") else f"whole-{part}" for part in line]
        subprocess.run(reference, cwd=self.folder, check=True, capture_output=True, timeout=100)
        whole = self.tensors("whole-hf/hf_iter_0000008")
        for phase in ("laid-out", "half-written", "manifest-written", "committed", "done"):
            for times in (1, 2, 3, 5):
                with self.subTest(phase=phase, times=times):
                    for folder in ("run", "hf"):
                        shutil.rmtree(self.folder / folder, ignore_errors=True)
                    killed = subprocess.run(line, cwd=self.folder, capture_output=True, timeout=100, check=False,
                                            env={**os.environ, "TRIFOLD_TEST_KILL_AT": f"{phase}:{times}"})
                    self.assertEqual(killed.returncode, -signal.SIGKILL, killed.stderr)
                    left = sorted(p.name for p in (self.folder / "hf").iterdir())
                    for name in left:
                        if name.startswith("hf_iter_") and ".tmp-" not in name:
                            self.assertEqual(self.tensors(f"hf/{name}"), self.tensors(f"whole-hf/{name}"))
                    subprocess.run(line, cwd=self.folder, check=True, capture_output=True, timeout=100)
                    self.assertEqual(sorted(p.name for p in (self.folder / "hf").iterdir()),
                                     [f"hf_iter_{step:07}" for step in (2, 4, 6, 8)])
                    self.assertEqual(self.tensors("hf/hf_iter_0000008"), whole)

    def test_killed_while_converting(self):
        line = [TRIFOLD, "pretrain", *SMALL, "--data-path", str(TEXT), "--train-iters", "100000", "--save-hf", "hf",
                "--save-hf-interval", "1"]
        line[line.index("--hidden-size") + 1] = "256"
        for _ in range(10 if WHOLE else 3):
            shutil.rmtree(self.folder / "hf", ignore_errors=True)
            with subprocess.Popen(line, cwd=self.folder, stderr=subprocess.DEVNULL) as process:
                deadline = time.time() + 60
                while time.time() < deadline and not list(self.folder.glob("hf/*.tmp-*/model*")):
                    time.sleep(0.0005)
                process.kill()
                process.wait(timeout=60)
            complete = [p for p in (self.folder / "hf").iterdir() if ".tmp-" not in p.name and p.name.startswith("hf_iter_")]
            for folder in complete:
                self.assertEqual(sorted(p.name for p in folder.iterdir()), ["config.json", "model.safetensors", "trifold_run"])
                self.tensors(folder)

    def test_a_folder_is_loaded_as_the_converted_checkpoint(self):
        self.make_model()
        self.trifold("convert", "--load", "model", "--save", "checkpoint")
        meshes = [[], ["--ranks", 2, "--tp", 2], ["--ranks", 4, "--tp", 2, "--pp", 2], ["--ranks", 2, "--zero-stage", 3],
                  ["--ranks", 2, "--cp", 2], ["--ranks", 2, "--tp", 2, "--sequence-parallel", "--bf16"]]
        for more in meshes:
            with self.subTest(mesh=more):
                line = ["--train-iters", 3, "--tokenizer-type", "byte", *more]
                _, text = self.from_folder(*line, "--load", "model", "--log-json", "folder.jsonl")
                self.assertIn("only the weights were taken from model", text)
                self.assertNotIn("--no-load-optim", text)
                self.pretrain(*line, "--log-interval", 1, "--load", "checkpoint", "--finetune", "--log-json", "checkpoint.jsonl")
                self.assertEqual(len(self.losses("folder.jsonl")), 3)
                self.assertEqual(self.losses("folder.jsonl"), self.losses("checkpoint.jsonl"))
                for log in ("folder.jsonl", "checkpoint.jsonl"):
                    (self.folder / log).unlink()

    def test_no_load_optim_is_a_note(self):
        self.make_model()
        _, text = self.from_folder("--train-iters", 1, "--load", "model", "--no-load-optim")
        self.assertIn("--no-load-optim has no effect", text)

    @unittest.skipUnless(HAS_MPI, "mpiexec is missing")
    def test_loaded_by_processes(self):
        self.make_model()
        for name, prefix, more in (("one", (), []), ("two", mpi(2), ["--tp", 2]), ("threads", (), ["--ranks", 2, "--tp", 2])):
            self.from_folder("--train-iters", 3, "--load", "model", "--log-json", f"{name}.jsonl", *more, prefix=prefix)
        self.assertEqual(self.losses("two.jsonl"), self.losses("threads.jsonl"))
        self.assertAlmostEqual(self.losses("one.jsonl")[0], self.losses("two.jsonl")[0], places=5)

    def test_a_mixture_of_experts_and_several_files(self):
        self.pretrain("--train-iters", 2, "--save", "made", *EXPERTS)
        self.trifold("convert", "--load", "made", "--save", "model", "--max-file-size", "1e-5")
        self.trifold("convert", "--load", "model", "--save", "checkpoint")
        for more in ([], ["--ranks", 2, "--ep", 2], ["--ranks", 2, "--tp", 2, "--sequence-parallel"]):
            self.from_folder("--train-iters", 2, "--load", "model", "--log-json", "folder.jsonl", *more)
            self.pretrain("--train-iters", 2, "--log-interval", 1, "--load", "checkpoint", "--finetune", *EXPERTS, *more,
                          "--log-json", "checkpoint.jsonl")
            self.assertEqual(self.losses("folder.jsonl"), self.losses("checkpoint.jsonl"))
            for log in ("folder.jsonl", "checkpoint.jsonl"):
                (self.folder / log).unlink()

    def test_other_commands_take_a_folder(self):
        self.make_model()
        for load in ("model", "made"):
            self.trifold("evaluate", "--load", load, "--data-path", TEXT, "--split", "90,10,0", "--eval-iters", 4, "--log-json",
                         f"{load}.jsonl", "--ranks", 2, "--tp", 2)
        self.assertEqual(self.records("model.jsonl")[-1]["valid_loss"], self.records("made.jsonl")[-1]["valid_loss"])
        samples = [self.trifold("generate", "--load", load, "--prompt", "To be", "--max-new-tokens", 8)[0]
                   for load in ("model", "made")]
        self.assertEqual(*samples)
        out, _ = self.from_folder("--train-iters", 2, "--load", "model", "--print-config")
        self.assertRegex(out, r"num-layers = 2 .*model/config.json")

    def test_continues_with_its_tokenizer_and_its_family(self):
        tokenizer = (GOLDEN / "hf_tokenizers" / "gpt2.json").read_bytes()
        (self.folder / "t.json").write_bytes(tokenizer)
        self.make_model("--tokenizer-type", "huggingface", "--tokenizer-model", "t.json")
        (self.folder / "t.json").unlink()
        config = self.config("model")
        config["eos_token_id"] = 7
        (self.folder / "model" / "config.json").write_text(json.dumps(config))
        (self.folder / "model" / "generation_config.json").write_text('{"temperature": 0.6}')
        self.from_folder("--train-iters", 4, "--load", "model", "--save", "run", "--save-interval", 2, "--save-hf", "hf",
                         "--save-hf-interval", 2)
        self.assertEqual((self.folder / "hf" / "hf_iter_0000002" / "tokenizer.json").read_bytes(), tokenizer)
        self.assertEqual(self.config("hf/hf_iter_0000002")["eos_token_id"], 7)
        self.assertEqual((self.folder / "hf" / "hf_iter_0000002" / "generation_config.json").read_text(), '{"temperature": 0.6}')
        # The run's own checkpoint goes before the folder when it resumes.
        _, text = self.from_folder("--train-iters", 6, "--load", "model", "--save", "run", "--auto-resume")
        self.assertIn("steps       5 to 6", text)
        self.is_as_converted("run/step_0000000004", "hf/hf_iter_0000004")

    def test_a_folder_with_mistakes(self):
        self.make_model()

        def refused(part, *more, save="out"):
            _, text = self.from_folder("--train-iters", 2, "--load", "model", "--save", save, *more, status=2)
            self.assertIn(part, text)
            self.assertFalse((self.folder / "out").exists())

        refused("model: the checkpoint is of another model:\n  num_layers: checkpoint 2, requested 3", "--num-layers", 3)
        refused("--save model is a model itself: name another folder", save="model")
        config, weights = (self.folder / "model" / name for name in ("config.json", "model.safetensors"))
        good = config.read_text()
        config.write_text(json.dumps({**json.loads(good), "n_embd": 64}))
        refused("tensor transformer.wte.weight is [256, 32]; config.json makes it [256, 64]")
        config.write_text(json.dumps({**json.loads(good), "model_type": "llama"}))
        refused("config.json")
        config.write_text("{")
        refused("config.json")
        config.write_text(good)
        data = weights.read_bytes()
        weights.write_bytes(data[:-100])
        refused("model.safetensors")
        weights.write_bytes(data.replace(b'"shape":[32,96]', b'"shape":[96,32]', 1))
        refused("is [96, 32]; config.json makes it [32, 96]")
        weights.unlink()
        refused("model.safetensors")
        shutil.rmtree(self.folder / "model")
        self.trifold("convert", "--load", "made", "--save", "model", "--max-file-size", "1e-5")
        shard = sorted((self.folder / "model").glob("model-*.safetensors"))[1]
        shard.unlink()
        refused(shard.name)


if __name__ == "__main__":
    unittest.main()
