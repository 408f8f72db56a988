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
                     "  model.transformer.h.0: ", "  model.transformer.h.1: ", "all operations are known",
                     "every byte has the checksum of the archive"):
            self.assertIn(line, out)
        self.assertNotIn("no gradient reaches", out)

    def test_buffers(self):
        out, _ = self.trifold("inspect", MODELS / "mlp.pt2")
        self.assertIn("buffers and constants: 1 tensor, 1 element, 8 B", out)
        self.assertIn("  updated by each forward: calls", out)

    def test_unknown_operations_are_listed_together(self):
        def unknown(text):
            return text.replace(b"torch.ops.aten.tanh.default", b"torch.ops.mine.tanh.default").replace(
                b"torch.ops.aten.relu.default", b"torch.ops.higher_order.cond")

        (self.folder / "m.pt2").write_bytes(changed(MODELS / "mlp.pt2", "model.json", unknown))
        out, _ = self.trifold("inspect", "m.pt2")
        self.assertIn("operations that are not known, which prevent training: 2", out)
        self.assertIn("node 'relu' (torch.ops.higher_order.cond), own_models_torch.py:", out)
        self.assertIn("node 'tanh' (torch.ops.mine.tanh.default), own_models_torch.py:", out)

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
