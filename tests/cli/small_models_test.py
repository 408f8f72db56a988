"""Every command reads the checkpoint of every small recommender: few tables, few layers, with and without dense features, of every kind."""

import itertools
import unittest

from program import ProgramTest

USERS, ITEMS = 7, 5
INTERACTIONS = (("dot",), ("dot", "--interaction-self"), ("cat",), ("cat", "--wide"), ("cross", "--cross-layers", 1, "--cross-rank", 2), ("fm",), ("fm", "--wide"))
OPTIMIZERS = itertools.cycle((("sgd", "sgd"), ("adagrad", "rowwise-adagrad"), ("sgd", "adagrad"), ("adam", "adam"), ("sgd", "ftrl"), ("adam", "sgd")))
LAYERS = itertools.cycle((("4", "1"), ("4", "1"), ("8-4", "6-1")))  # of the bottom and the top MLP
COMMON = ("--embedding-dim", 4, "--global-batch-size", 16, "--lr", 0.05, "--threads-per-rank", 1)


class SmallModels(ProgramTest):
    def setUp(self):
        super().setUp()
        (self.folder / "t.csv").write_text("click,like,age,user,item,seen\n" + "".join(
            f"{int(i * 7 % 5 < 2)},{i % 3 % 2},{i % 9},u{i % USERS},i{i % ITEMS},i{i % ITEMS}|i{i % 3}\n" for i in range(60)))

    def preprocess(self, name, *columns):
        self.trifold("preprocess", "--input", "t.csv", "--output", name, *(columns or ("--label", "click")))

    def reads(self, run, data, onnx=True):
        """Every command that reads a checkpoint of a recommender reads this one."""
        self.trifold("evaluate", "--load", run, "--data", data, "--json", f"{run}.json")
        self.trifold("score", "--load", run, "--data", data, "--output", f"{run}.csv")
        self.trifold("convert", "--load", run, "--save", f"{run}.safetensors")
        if onnx:
            self.trifold("convert", "--load", run, "--save", f"{run}.onnx")
        self.trifold("inspect", "--verify", run)
        self.trifold("reshard", "--load", run, "--save", f"{run}-small", "--files", 2, "--no-save-optim")
        out, _ = self.trifold("score", "--load", f"{run}-small", "--data", data, "--output", "-")
        self.assertEqual(out, (self.folder / f"{run}.csv").read_text())

    def train(self, run, data, *options, **more):
        return self.trifold("recommend", "--train-data", data, *COMMON, *options, "--save", run, **more)

    def test_tables_layers_and_interactions(self):
        for dense, tables, interaction in itertools.product((0, 1), (1, 2), INTERACTIONS):
            data = f"d{dense}{tables}"
            if not (self.folder / data).exists():
                self.preprocess(data, "--label", "click", "--sparse", ("user", "user,item")[tables - 1], *(("--dense", "age") if dense else ()))
            bottom, top = next(LAYERS)
            dense_optimizer, table_optimizer = next(OPTIMIZERS)
            run = f"{data}-{'-'.join(map(str, interaction)).replace('-', '')}"
            options = (*(("--bottom-mlp", bottom) if dense else ()), "--top-mlp", top, "--interaction", *interaction, "--optimizer", dense_optimizer,
                       "--embedding-optimizer", table_optimizer)
            if not dense and tables == 1 and interaction in (("dot",), ("fm",), ("fm", "--wide")):
                _, err = self.train(run, data, *options, status=2)
                self.assertIn("no dense features and one table", err)
                continue
            self.train(run, data, *options)
            self.reads(run, data)

    def test_attention_labels_keys_and_batch_norm(self):
        top = ("--top-mlp", "1")
        for name, columns, options in (
                ("attention", ("--label", "click", "--sparse", "item", "--bag", "seen:|", "--share-table", "seen:item"),
                 (*top, "--interaction", "cat", "--attention", "seen:item", "--attention-mlp", "1")),
                ("bag", ("--label", "click", "--bag", "seen:|"), (*top, "--interaction", "cat", "--pooling", "mean")),
                ("labels", ("--label", "click,like", "--sparse", "user,item"), (*top, "--tower-mlp", "1")),
                ("mmoe", ("--label", "click,like", "--sparse", "user,item"), ("--top-mlp", "2-1", "--tower-mlp", "1", "--multi-task", "mmoe", "--mmoe-experts", 1)),
                ("keys", ("--label", "click", "--sparse", "user", "--ids", "keys"), (*top, "--interaction", "cat", "--table-rows", 5)),
                ("norm", ("--label", "click", "--sparse", "user"), ("--top-mlp", "2-1", "--interaction", "cat", "--batch-norm")),
                ("hash", ("--label", "click", "--sparse", "user,item", "--ids", "hash", "--max-ind-range", 4), top)):
            self.preprocess(name, *columns)
            self.train(f"{name}-run", name, *options)
            self.reads(f"{name}-run", name, onnx=name != "keys")


if __name__ == "__main__":
    unittest.main()
