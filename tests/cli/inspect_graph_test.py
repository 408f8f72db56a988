"""`trifold inspect` of models that PyTorch exported: the report, and files that are damaged or of another kind."""

import io
import json
import pathlib
import unittest
import zipfile

import program

MODELS = pathlib.Path(__file__).resolve().parents[1] / "data" / "own_models"


def changed(path, name_end, change):
    """The file with one member, whose name has this end, changed by a function of bytes; None leaves the member out."""
    content = io.BytesIO()
    with zipfile.ZipFile(path) as whole, zipfile.ZipFile(content, "w") as new:
        for entry in whole.infolist():
            data = whole.read(entry)
            if entry.filename.endswith(name_end):
                data = change(data)
            if data is not None:
                new.writestr(zipfile.ZipInfo(entry.filename), data)
    return content.getvalue()


class InspectGraph(program.ProgramTest):
    def refused(self, content):
        """The message for a file with this content."""
        (self.folder / "m.pt2").write_bytes(content)
        out, err = self.trifold("inspect", "m.pt2", status=2)
        self.assertEqual(out, "")
        return err

    def test_report(self):
        out, err = self.trifold("inspect", MODELS / "gpt2.pt2", "--verify")
        self.assertEqual(err, "")
        for line in ("a model exported by PyTorch 2.15.0 (schema 8.20)", "trifold pretrain --model FILE --arrays NAME=PATH",
                     "batch: 2 samples or more", "  input_ids  i64 [batch, 8]", "  labels  i64 [batch, 8]",
                     "parameters: 28 tensors, 7744 elements", "  tied: model.lm_head.weight = model.transformer.wte.weight",
                     "  model.transformer.h.0: ", "  model.transformer.h.1: ", "blocks: 4",
                     "every byte has the checksum of the archive"):
            self.assertIn(line, out)
        self.assertNotIn("no gradient reaches", out)

    def test_buffers(self):
        out, _ = self.trifold("inspect", MODELS / "mlp.pt2")
        self.assertIn("buffers and constants: 1 tensor, 1 element, 8 B", out)
        self.assertIn("  updated by each forward: calls", out)

    def test_all_that_prevents_training_is_in_one_list(self):
        """Also what follows an operation that is not known, and inputs without a batch; pretrain has the same list."""
        def changed_model(data):
            text = data.replace(b"torch.ops.aten.relu.default", b"torch.ops.higher_order.cond").replace(
                b"torch.ops.aten.tanh.default", b"torch.ops.aten.tril.default")
            model = json.loads(text)
            model["graph_module"]["graph"]["tensor_values"]["features"]["sizes"][0] = {"as_int": 3}
            return json.dumps(model).encode()

        (self.folder / "m.pt2").write_bytes(changed(MODELS / "mlp.pt2", "model.json", changed_model))
        out, err = self.trifold("inspect", "m.pt2")
        self.assertEqual(err, "")
        listed = out[out.index("the model cannot be trained, for 3 reasons:"):].splitlines()
        self.assertEqual(len(listed), 4, listed)
        for line, beginning, end in zip(listed[1:], (
                "  the input 'features' has shape [3, 6]", "  node 'relu' (torch.ops.higher_order.cond), own_models_torch.py:",
                "  node 'tanh' (tril), own_models_torch.py:"), (
                "export the model with a dynamic dimension 0 of every input", "the operation is not known", "it has no gradient here"),
                                        strict=True):
            self.assertTrue(line.startswith(beginning), line)
            self.assertTrue(line.endswith(end), line)
        self.assertNotIn("blocks:", out)
        for command in ("plan", "pretrain --global-batch-size 2 --train-iters 1 --lr 1e-3 --arrays x.npy"):
            _, err = self.trifold(*command.split(), "--model", "m.pt2", "--micro-batch-size", 1, status=2)
            for line in listed:
                self.assertIn(line, err)

    def test_numbers_for_tensors_do_not_hide_other_reasons(self):
        def changed_model(data):
            model = json.loads(data.replace(b"torch.ops.aten.tanh.default", b"torch.ops.aten.tril.default"))
            for node in model["graph_module"]["graph"]["nodes"]:
                if node["name"] == "linear":
                    node["inputs"][1]["arg"] = {"as_float": 2.0}
            return json.dumps(model).encode()

        (self.folder / "m.pt2").write_bytes(changed(MODELS / "mlp.pt2", "model.json", changed_model))
        out, _ = self.trifold("inspect", "m.pt2")
        self.assertIn("the model cannot be trained, for 2 reasons:", out)
        self.assertIn("its argument 'weight' is no tensor", out)
        self.assertIn("it has no gradient here", out)

    def test_costs_are_those_of_plan(self):
        for name in ("gpt2", "gradients/t5", "mlp"):
            path = MODELS / f"{name}.pt2"
            out, _ = self.trifold("inspect", path)
            rows = [line.split() for line in out[out.index("blocks:"):out.index("a step of one sample:")].splitlines()[2:]]
            plan, _ = self.trifold("plan", "--model", path, "--micro-batch-size", 1, "--json", "plan.json")
            report = json.loads((self.folder / "plan.json").read_text())
            costs = out[out.index("a step of one sample:"):]
            flops = next(line for line in plan.splitlines() if line.startswith("model ")).split("parameters, ")[1].split(" FLOP")[0]
            self.assertIn(f"{flops} FLOP", costs)
            ranks = [line.split() for line in plan.splitlines()]
            memory = next(words for words in ranks if words[:1] == ["0"] and "KiB" in words)
            numbers = [" ".join(memory[i:i + 2]) for i in (1, 3, 5, 7)]
            for what, number in zip(("weights", "gradients", "optimizer", "activations"), numbers, strict=True):
                self.assertIn(f"{what} {number}", costs)
            self.assertEqual(sum(int(words[1]) for words in rows), report["parameters"])
            self.assertEqual(rows[-1][2], "-")  # nothing crosses the end of the last block
        out, _ = self.trifold("inspect", MODELS / "gpt2.pt2")
        blocks = out[out.index("blocks:"):out.index("a step of one sample:")]
        self.assertIn("blocks: 4", blocks)
        self.assertIn("model.transformer.wte, model.transformer.wpe", blocks)
        self.assertIn("model.transformer.h.1", blocks)

    def test_other_files(self):
        self.assertIn("is not a zip archive", self.refused(b"not a zip archive"))
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            archive.writestr("m/data.pkl", b"")
        self.assertIn("torch.export.save", self.refused(content.getvalue()))
        _, err = self.trifold("inspect", "missing.pt2", status=2)
        self.assertIn("missing.pt2", err)
        _, err = self.trifold("inspect", MODELS / "mlp.pt2", "--diff", MODELS / "gpt2.pt2", status=2)
        self.assertIn("--diff compares checkpoints", err)

    def test_damaged_files(self):
        path = MODELS / "mlp.pt2"
        whole = path.read_bytes()
        for size in (3, 30, len(whole) // 2, len(whole) - 1):
            self.assertIn("m.pt2", self.refused(whole[:size]))

        def config(key, value):
            def change(data):
                lists = json.loads(data)
                lists["config"]["first.weight"][key] = value
                return json.dumps(lists).encode()
            return change

        meta = {"dtype": 7, "sizes": [{"as_int": 8}, {"as_int": 6}], "strides": [{"as_int": 6}, {"as_int": 1}],
                "storage_offset": {"as_int": 0}, "layout": 7}
        weights = "model_weights_config.json"
        for key, value, message in (
                ("use_pickle", True, "stored as a pickle"),
                ("path_name", "../weight_1", "has no member"),
                ("tensor_meta", {**meta, "storage_offset": {"as_int": 1}}, "are outside the 48"),
                ("tensor_meta", {**meta, "strides": [{"as_int": 600}, {"as_int": 1}]}, "are outside the 48"),
                ("tensor_meta", {**meta, "strides": [{"as_int": -6}, {"as_int": 1}]}, "a whole number from 0"),
                ("tensor_meta", {**meta, "sizes": [{"as_int": 1 << 40}, {"as_int": 1 << 40}]}, "too many elements"),
                ("tensor_meta", {**meta, "layout": 1}, "only dense tensors")):
            self.assertIn(message, self.refused(changed(path, weights, config(key, value))))
        self.assertIn("byteorder", self.refused(changed(path, "byteorder", lambda data: b"big")))
        self.assertIn("no member", self.refused(changed(path, "weight_0", lambda data: None)))
        self.assertIn("schema 9.20", self.refused(changed(path, "model.json",
                                                          lambda data: data.replace(b'"major": 8', b'"major": 9'))))


if __name__ == "__main__":
    unittest.main()
