"""tests/golden/hugging_face_fields.json is what an installed transformers says; skipped where there is none."""

import importlib.util
import pathlib
import subprocess
import sys
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools" / "reference" / "hugging_face_fields.py"


def load():
    spec = importlib.util.spec_from_file_location("hugging_face_fields", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(SCRIPT.parent))  # for the table of families
    spec.loader.exec_module(module)
    return module


class HuggingFaceFields(unittest.TestCase):
    @unittest.skipUnless(importlib.util.find_spec("transformers"), "transformers is not installed")
    def test_installed_version(self):
        done = subprocess.run([sys.executable, SCRIPT, "check"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_renamed_field_is_found(self):
        old = {"llama": {"fields": {"rms_norm_eps": 1e-6, "head_dim": None}}}
        new = {"llama": {"fields": {"norm_eps": 1e-6, "head_dim": 4}}}
        self.assertEqual(list(load().differences(old, new, "x")), [
            "x.llama.fields.head_dim is 4; it was null", "x.llama.fields.norm_eps is new: 1e-06",
            "x.llama.fields.rms_norm_eps is gone; it was 1e-06"])
        self.assertEqual(list(load().differences(old, old, "x")), [])


if __name__ == "__main__":
    unittest.main()
