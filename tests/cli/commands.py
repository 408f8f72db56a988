"""One small job of every command that writes, in one folder of inputs: for tests that treat all commands alike."""

import random
import shutil

from program import SMALL, ProgramTest

ONE = ["--threads-per-rank", "1"]
GPT = ["--num-layers", "1", "--hidden-size", "32", "--num-attention-heads", "2", "--seq-length", "32", "--vocab-size", "256",
       "--micro-batch-size", "2"]
TUNE = ["--task", "classify", "--load", "bert", "--train-data", "train.tsv", "--valid-data", "dev.tsv", "--lr", "1e-3",
        "--micro-batch-size", "8", "--lr-decay-style", "constant", "--train-iters", "2", *ONE]
TABLES = ["--embedding-dim", "4", "--bottom-mlp", "8-4", "--top-mlp", "8-1", "--global-batch-size", "64", *ONE]

# name: the command with its inputs, and its outputs as {option: a new name}. All inputs are made by `prepare`.
JOBS = {
    "pretrain": (["pretrain", *SMALL, "--data-path", "text.txt", "--train-iters", "2", "--save-hf-interval", "1"],
                 {"--save": "new", "--save-hf": "new.hf", "--log-json": "new.jsonl", "--tensorboard-dir": "new.tb", "--trace": "new.pftrace"}),
    "pretrain of pairs": (["pretrain", *SMALL, "--data-path", "pair_text_document", "--vocab-size", "256", "--train-iters", "2",
                           "--save-hf-interval", "1"],
                          {"--save": "new", "--save-hf": "new.hf", "--log-json": "new.jsonl", "--tensorboard-dir": "new.tb", "--trace": "new.pftrace"}),
    "finetune": (["finetune", *TUNE, "--save-hf-interval", "1"],
                 {"--save": "new", "--save-hf": "new.hf", "--log-json": "new.jsonl", "--tensorboard-dir": "new.tb", "--trace": "new.pftrace", "--predictions": "new.out"}),
    "evaluate": (["evaluate", "--load", "gpt", "--data-path", "text.txt", "--split", "90,10,0", "--eval-iters", "1", *ONE],
                 {"--log-json": "new.jsonl", "--loss-by-position": "new.csv"}),
    "evaluate-task": (["evaluate", "--load", "gpt", "--task", "task.jsonl", *ONE],
                      {"--log-json": "new.jsonl", "--log-likelihoods": "new.each"}),
    "reshard": (["reshard", "--load", "gpt", "--files", "2"], {"--save": "new"}),
    "convert": (["convert", "--load", "gpt"], {"--save": "new"}),
    "convert back": (["convert", "--load", "model"], {"--save": "new"}),
    "convert to ONNX": (["convert", "--load", "dlrm"], {"--save": "new.onnx"}),
    "convert to safetensors": (["convert", "--load", "dlrm"], {"--save": "new.safetensors"}),
    "bench": (["bench", "--what", "gemm", "--iters", "1", "--warmup-iters", "0", *GPT, *ONE], {"--json": "new.json"}),
    "plan": (["plan", *GPT, "--config", "plan.cfg", "--hardware", "device.json"],
             {"--json": "new.json", "--svg": "new.svg", "--schedule-csv": "new.csv"}),
    "plan-recommender": (["plan", "--train-data", "clicks", *TABLES], {"--json": "new.json", "--svg": "new.svg"}),
    "rehearse": (["rehearse", *GPT, "--config", "plan.cfg", "--data-path", "text.txt", *ONE], {"--json": "new.json"}),
    "rehearse-task": (["rehearse", *TUNE], {"--json": "new.json"}),
    "rehearse-recommender": (["rehearse", "--train-data", "clicks", *TABLES], {"--json": "new.json"}),
    "tokenize": (["tokenize", "--input", "text.txt"], {"--output-prefix": "new"}),
    "preprocess": (["preprocess", "--input", "day.csv", "--dictionaries-of", "clicks", "--threads", "2"], {"--output": "new"}),
    "preprocess of a folder": (["preprocess", "--input", "days", "--label", "click", "--sparse", "user", "--threads", "2"],
                               {"--output": "new"}),
    "recommend": (["recommend", "--train-data", "clicks", *TABLES, "--train-iters", "2"],
                  {"--save": "new", "--log-json": "new.jsonl", "--tensorboard-dir": "new.tb", "--trace": "new.pftrace"}),
    "score": (["score", "--load", "dlrm", "--data", "day.csv", "--dictionaries-of", "clicks", *ONE], {"--output": "new.csv"}),
    "evaluate-recommender": (["evaluate", "--load", "dlrm", "--data", "clicks", *ONE], {"--json": "new.json"}),
    "doctor": (["doctor"], {"--json": "new.json"}),
    "report": (["report", "old.jsonl", "--flight", "flight"], {"--output": "new.html", "--trace": "new.pftrace"}),
}

# Options that name files which the jobs above do not write: files without a name, a cache for a GPU, and kept values.
UNWRITTEN = {"--flight-dir", "--offload", "--cpu-offloading-folder", "--table-storage", "--tune-products",
             "--dpo-reference-folder"}
# Options of a run that a plan has and does not carry out.
OF_THE_RUN = {"--save", "--save-hf", "--log-json", "--tensorboard-dir", "--trace"}

DEVICE = '{"base": "h100", "name": "mine"}\n'


class CommandsTest(ProgramTest):
    def prepare(self, samples=300):
        """The inputs of all jobs."""
        rng = random.Random(1)
        text = "".join("the cat sat on the mat and the dog ran to the sea\n" for _ in range(samples))
        (self.folder / "text.txt").write_text(text)
        (self.folder / "task.jsonl").write_text('{"context": "the cat", "choices": ["sat", "ran"], "answer": 0}\n')
        (self.folder / "plan.cfg").write_text("lr = 1e-3\n")
        (self.folder / "old.jsonl").write_text('{"step":1,"loss":2.5,"lr":0.1}\n')
        (self.folder / "device.json").write_text(DEVICE)
        for name, count in (("train.tsv", 40), ("dev.tsv", 10)):
            lines = [f"{rng.choice(('plus', 'star'))}\tcat {rng.choice('+*')} dog" for _ in range(count)]
            (self.folder / name).write_text("label\ttext\n" + "\n".join(lines) + "\n")
        rows = [f"{rng.randint(0, 1)},u{rng.randint(0, 40)},{rng.random():.3f}\n" for _ in range(samples)]
        (self.folder / "days").mkdir()
        for name in ("day.csv", "days/1.csv"):
            (self.folder / name).write_text("click,user,age\n" + "".join(rows))
        self.trifold("preprocess", "--input", "day.csv", "--output", "clicks", "--label", "click", "--sparse", "user", "--dense", "age")
        self.trifold("recommend", "--train-data", "clicks", *TABLES, "--train-iters", "2", "--save", "dlrm")
        self.trifold("tokenize", "--input", "text.txt", "--output-prefix", "pair")
        self.trifold("pretrain", *SMALL, "--data-path", "text.txt", "--train-iters", "2", "--save", "gpt",
                     "--flight-dir", "flight")
        self.trifold("convert", "--load", "gpt", "--save", "model")
        (self.folder / "bert.txt").write_text("\n\n".join("\n".join("cat + dog * sun sea" for _ in range(6)) for _ in range(6)))
        self.trifold("pretrain", "--model-type", "bert", *GPT[:8], "--max-position-embeddings", "64", "--micro-batch-size", "8", "--lr",
                     "3e-3", "--data-path", "bert.txt", "--train-iters", "1", "--save", "bert", *ONE)

    def remove(self, name):
        for path in self.folder.glob(name + "*"):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
