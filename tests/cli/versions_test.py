"""Files and command lines of earlier versions: today's program repeats each command of tests/data/versions on the files of then, with the same
results, and uses the files in other ways."""

import hashlib
import json
import math
import os
import pathlib
import re
import struct
import tarfile
import unittest
import zlib

from program import ProgramTest

ARCHIVES = sorted((pathlib.Path(os.environ["TRIFOLD_ROOT"]) / "tests/data/versions").glob("*.tar.xz"))
OUTPUTS = ("--save", "--log-json", "--output", "--output-prefix", "--json", "--predictions", "--schedule-csv")
NOT_COMPARED = ("zb.csv",)  # the order of a schedule may change
MESH = ("--ranks", "--tp", "--pp", "--ep", "--zero-stage", "--placement")

# Numbers in JSON that depend on the machine and its load, and forecasts, whose formulas may change.
MEASURED = re.compile(r"second|time|_ms|per_s|bytes|memory|flop|mfu|rate_|efficiency|bubble|predicted|closed_form|run_id")

# Jobs whose results have changed on purpose (docs/compatibility.md): they only have to work. `unknown` ones have a test of their own.
CHANGED = ("counted", "counted_resumed", "din_unknown", "wide_unknown")

# Options that say today what the earlier program did without them (docs/compatibility.md).
MEANT = {("82db041", "dcn"): ("--data-format", "csv-hex"),
         ("82db041", "dcn_resumed"): ("--data-format", "csv-hex"),
         ("82db041", "dlrm_config"): ("--table-rows", "data")}

# Options that continue a kept run on another mesh than in its kept command line.
OTHER_MESHES = {
    "gpt_resumed": ("--ranks", 4, "--tp", 2, "--zero-stage", 3),
    "llama_resumed": ("--ranks", 2, "--pp", 2),
    "bert_resumed": ("--ranks", 2, "--tp", 2),
    "moe_resumed": ("--ranks", 2, "--ep", 2),
    "dlrm_resumed": ("--ranks", 2, "--placement", "table"),
    "dcn_resumed": ("--ranks", 3, "--placement", "row"),
    "din_resumed": ("--ranks", 3, "--placement", "column"),
    "wide_resumed": ("--ranks", 2, "--placement", "column"),
    "fm_resumed": ("--ranks", 2, "--zero-stage", 1),
    "tables_resumed": ("--ranks", 2, "--placement", "row"),
}


def close(one, other, tolerance):
    if isinstance(one, float) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance * 1e-2)
    return one == other


def differences(kept, new, tolerance, place=""):
    """Where a kept JSON value and a new one differ. The new one may have more fields."""
    if isinstance(kept, dict):
        for name, value in kept.items():
            if name not in new:
                yield f"{place}.{name} is gone"
            elif not MEASURED.search(name):
                yield from differences(value, new[name], tolerance, f"{place}.{name}")
    elif isinstance(kept, list):
        if len(kept) != len(new):
            yield f"{place}: {len(kept)} entries, now {len(new)}"
        for number, (a, b) in enumerate(zip(kept, new)):
            yield from differences(a, b, tolerance, f"{place}[{number}]")
    elif not close(kept, new, tolerance):
        yield f"{place}: {kept}, now {new}"


def numbers_and_words(text):
    """The fields of a table or of printed text, numbers with a point as numbers."""
    return [float(word) if re.fullmatch(r"-?\d+\.\d+(e-?\d+)?", word) else word for word in re.split(r"[\s,]+", text)]


def write_manifest(path, text):
    """Writes a manifest with a new checksum; the text has an old one, or any eight digits."""
    path.write_bytes(text[:-12] + b'%08x"\n}\n' % zlib.crc32(text[:-12]))


def unpack(archive, folder):
    """Unpacks an archive. Checkpoints name their tokenizers by absolute paths: they become those of this folder."""
    with tarfile.open(archive) as files:
        files.extractall(folder)
    was = (folder / "folder.txt").read_bytes().strip()
    for path in folder.glob("*/step_*/manifest.json"):
        text = path.read_bytes()
        if was in text:
            write_manifest(path, text.replace(was, str(folder).encode()))


def tensors_of(data):
    """The tensors of a safetensors file: {name: (shape, bytes)}."""
    begin = 8 + struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:begin])
    header.pop("__metadata__", None)
    return {name: (entry["shape"], data[begin + entry["data_offsets"][0]:begin + entry["data_offsets"][1]]) for name, entry in header.items()}


def steps_of(folder):
    return sorted(path for path in folder.iterdir() if re.fullmatch(r"step_\d+", path.name))


class Kept:
    """Tests of the files in one archive."""

    archive = None

    def setUp(self):
        super().setUp()
        unpack(self.archive, self.folder)
        (self.folder / "again").mkdir()
        self.lines = {}
        for line in (self.folder / "lines.tsv").read_text().splitlines():
            name, *arguments = line.split("\t")
            self.lines[name] = arguments

    def again(self, name, *more, **options):
        """Repeats a kept command, which writes below again/. With --ranks in `more` these options are the mesh."""
        arguments = []
        kept = iter(self.lines[name])
        for word in kept:
            if "--ranks" in more and word in MESH:
                next(kept)
            elif arguments and arguments[-1] in OUTPUTS:
                arguments.append(f"again/{word}")
            elif "--ranks" not in more or word != "--sequence-parallel":
                arguments.append(word)
        return self.trifold(*arguments, *more, *self.meant(name), **options)

    def meant(self, name):
        return MEANT.get((self.archive.name.split(".")[0], name), ())

    def outputs(self, name):
        arguments = self.lines[name]
        return [value for option, value in zip(arguments, arguments[1:]) if option in OUTPUTS]

    def json_of(self, path):
        """The lines of steps and evaluations of a log, without the events that newer programs record; or a whole file."""
        lines = (self.folder / path).read_text().splitlines()
        if not str(path).endswith("l"):
            return json.loads("\n".join(lines))
        return [line for line in map(json.loads, lines) if "event" not in line]

    def check_json(self, path, tolerance=1e-6, other=None):
        found = list(differences(self.json_of(path), self.json_of(other or f"again/{path}"), tolerance))
        self.assertEqual(found, [], path)

    def check_same_checkpoint(self, one, other):
        """All tensors are there and equal, but for rounding on another kind of CPU."""
        text, _ = self.trifold("inspect", one, "--diff", other)
        self.assertNotIn("only ", text)
        for line in text.splitlines():
            if found := re.search(r"^(?:param|adam|lamb|sgd|ftrl|adagrad|keys).* differ, by at most (\S+) ", line):
                self.assertLess(float(found[1]), 1e-6, line)
        self.assertRegex(text, r"tensors are bitwise equal")

    def check_same_clicks(self, one, other):
        """Every file of a folder of clicks, and the fields that it had then."""
        kept, new = self.folder / one, self.folder / other
        names = {path.name for path in kept.iterdir()} - {"clicks.json"}
        self.assertLessEqual(names, {path.name for path in new.iterdir()})
        for name in names:
            # A new folder has one spelling for numbers (`texts_as_written`), so the hashes of column code are others.
            if name != "code.dict":
                self.assertEqual((kept / name).read_bytes(), (new / name).read_bytes(), f"{one}/{name}")
        found = list(differences(self.json_of(f"{one}/clicks.json"), self.json_of(f"{other}/clicks.json"), 0))
        self.assertEqual([text for text in found if "dictionary_crc32" not in text], [])

    def check_output(self, path):
        kept, new = self.folder / path, self.folder / "again" / path
        if (kept / "clicks.json").exists():
            self.check_same_clicks(path, f"again/{path}")
        elif kept.is_dir():
            self.check_same_checkpoint(path, f"again/{path}")
        elif path.endswith((".json", ".jsonl")):
            self.check_json(path)
        elif path.endswith(".safetensors"):
            self.check_weights(kept.read_bytes(), new.read_bytes())
        elif kept.exists():
            one, other = numbers_and_words(kept.read_text()), numbers_and_words(new.read_text())
            self.assertEqual(len(one), len(other), path)
            for a, b in zip(one, other):
                self.assertTrue(close(a, b, 1e-6), f"{path}: {a}, now {b}")
        for suffix in (".bin", ".idx"):
            pair = f"{path}_text_document{suffix}"
            if (self.folder / pair).exists():
                self.assertEqual((self.folder / pair).read_bytes(), (self.folder / "again" / pair).read_bytes(), pair)

    def check_weights(self, kept, new):
        """Weights of a recommender. Today row 1 of a table, that of unknown values, is a mean if nothing has trained it."""
        tensors, others = tensors_of(kept), tensors_of(new)
        self.assertEqual(tensors.keys(), others.keys())
        for name, (shape, data) in tensors.items():
            row = len(data) // shape[0]
            other_row = range(row, 2 * row) if "embedding" in name else ()
            for place, (a, b) in enumerate(zip(data, others[name][1], strict=True)):
                self.assertTrue(a == b or place in other_row, name)

    def test_kept_commands_do_the_same(self):
        for name in self.lines:
            with self.subTest(name):
                printed, _ = self.again(name)
                for path in self.outputs(name):
                    if name not in CHANGED and path not in NOT_COMPARED:
                        self.check_output(path)
                if self.lines[name][0] == "generate":
                    self.assertEqual(printed, (self.folder / "printed" / name).read_text())
        for line in (self.folder / "sums.txt").read_text().splitlines():
            checksum, path = line.split()
            if path.endswith("/model.safetensors"):
                data = (self.folder / "again" / path).read_bytes()
                self.assertEqual(hashlib.sha256(data).hexdigest(), checksum, path)

    def test_runs_resume_on_other_meshes(self):
        for name, mesh in OTHER_MESHES.items():
            if name in self.lines:
                with self.subTest(name):
                    self.again(name, *mesh)
                    (log,) = self.outputs(name)
                    self.assertEqual(list(differences(self.losses_of(log), self.losses_of(f"again/{log}"), 1e-4)), [])

    def losses_of(self, log):
        return [{key: value for key, value in line.items() if key in ("step", "loss", "valid_loss", "valid_log_loss")} for line in self.json_of(log)]

    def test_known_values_predict_as_before(self):
        """Values of the second day that the model has never seen read as a mean today; samples without them have their old scores."""
        for run, tables in (("din", ("user", "code", "item", "tags", "words", "history")), ("wide", ("user", "code", "item"))):
            if run not in self.lines:
                continue
            self.again(f"{run}_unknown")
            data = self.lines[f"{run}_unknown"][self.lines[f"{run}_unknown"].index("--data") + 1]
            unknown = set().union(*(self.unknown_samples(self.folder / data, table) for table in tables))
            kept, new = ((self.folder / place / f"{run}_unknown.csv").read_text().splitlines()[1:] for place in ("", "again"))
            self.assertEqual(len(kept), len(new))
            known = [sample for sample in range(len(kept)) if sample not in unknown]
            self.assertGreater(len(known), 10)
            for sample in known:
                for a, b in zip(numbers_and_words(kept[sample]), numbers_and_words(new[sample]), strict=True):
                    self.assertTrue(close(a, b, 1e-6), f"{run}, sample {sample}: {kept[sample]}, now {new[sample]}")
            self.assertNotEqual(kept, new)

    @staticmethod
    def unknown_samples(folder, table):
        """Samples with a value that the dictionary of a table lacks, whose id is 1."""
        ids = (folder / f"{table}.ids").read_bytes()
        ends = folder / f"{table}.ends"
        ends = [end for end, in struct.iter_unpack("<Q", ends.read_bytes())] if ends.exists() else range(1, len(ids) + 1)
        return {sample for sample, (begin, end) in enumerate(zip([0, *ends], ends)) if 1 in ids[begin:end]}

    def checkpoints(self):
        return [path.parent.name for path in sorted(self.folder.glob("*/LATEST"))]

    def test_every_checkpoint_is_whole_and_converts(self):
        self.assertGreaterEqual(len(self.checkpoints()), 6)
        for name in self.checkpoints():
            text, _ = self.trifold("inspect", name, "--verify")
            self.assertIn("every byte is as it was written", text)
            self.trifold("reshard", "--load", name, "--save", f"again/{name}", "--files", 1)
            text, _ = self.trifold("inspect", name, "--diff", f"again/{name}")
            self.assertRegex(text, r"all \d+ tensors are bitwise equal")

    def test_a_language_model_returns_from_hugging_faces_files(self):
        for name in ("gpt", "llama", "bert", "tuned"):
            self.trifold("convert", "--load", name, "--save", f"again/{name}")
            self.trifold("convert", "--load", f"again/{name}", "--save", f"again/{name}_back")
            text, _ = self.trifold("inspect", name, "--diff", f"again/{name}_back")
            self.assertIn("tensors are bitwise equal", text)
            self.assertNotRegex(text, r"(?m)^param/.*(differ|only)")

    def test_a_run_continues_in_its_folder(self):
        """Checkpoints without `run_id` are of this run, if it starts from them, and else of another one."""
        line = [word for word in self.lines["llama_resumed"]]
        at = line.index("--load")
        del line[at:at + 2]
        _, message = self.trifold(*line, "--save", "llama", status=2)
        self.assertIn("llama", message)
        self.trifold(*line, "--load", "llama", "--save", "llama")
        self.assertEqual([path.name for path in steps_of(self.folder / "llama")], ["step_0000000003", "step_0000000005"])

    def test_recommenders_evaluate_as_their_run_did(self):
        self.trifold("evaluate", "--load", "dlrm", "--data", "criteo", "--json", "found.json", "--threads-per-rank", 1)
        found = self.json_of("found.json")
        kept = [line for line in self.json_of("dlrm.jsonl") if "valid_auc" in line][-1]
        self.assertAlmostEqual(found["auc"], kept["valid_auc"], delta=1e-6)
        self.assertAlmostEqual(found["log_loss"], kept["valid_log_loss"], delta=1e-6)

    def test_printed_configurations_are_read(self):
        for name in ("gpt_config", "dlrm_config"):
            command = self.lines[name][0]
            text, _ = self.trifold(command, "--config", f"printed/{name}", "--print-config")
            now = self.values(text)
            kept = self.values((self.folder / "printed" / name).read_text())
            self.assertGreater(len(kept), 20)
            self.assertEqual({option: now.get(option) for option in kept}, kept)
            self.trifold(command, "--config", f"printed/{name}", "--log-json", f"again/{name}.jsonl", *self.meant(name))
        self.check_json("zb_run.jsonl", 3e-5, other="again/gpt_config.jsonl")

    @staticmethod
    def values(text):
        return dict(re.findall(r"(?m)^([\w-]+) *= *(.*?)(?: *#.*)?$", text))


class Refused(ProgramTest):
    """Manifests that today's program must refuse, made from kept ones."""

    def setUp(self):
        super().setUp()
        unpack(next(path for path in ARCHIVES if path.name.startswith("62346406")), self.folder)

    def refused(self, run, edit, words):
        """Changes the manifest of a run, which must then be refused."""
        (step,) = steps_of(self.folder / run)
        manifest = json.loads((step / "manifest.json").read_bytes())
        edit(manifest)
        text = json.dumps({**manifest, "crc32": "0" * 8})
        write_manifest(step / "manifest.json", text[:-1].encode() + b"\n}\n")
        _, message = self.trifold("evaluate", "--load", run, "--data-path", "pair_text_document", "--eval-iters", 1, status=2)
        self.assertIn(words, message)

    def test_another_version_of_the_format(self):
        for version in (1, 3):
            self.refused("gpt", lambda manifest, version=version: manifest.update(version=version),
                         f"its version is {version}; this program reads version 2")

    def test_a_field_of_a_newer_model(self):
        self.refused("gpt", lambda manifest: manifest["model"].update(novelty=3), "'novelty' is not known: was it written by a newer version?")

    def test_experts_of_before_their_layout_changed(self):
        """[experts, 2, F, C] was [experts, 2 F, C], in versions between those that are kept."""
        def merge(dims, offset):
            return [dims[0], dims[1] * dims[2] if not offset else dims[2], dims[3]]

        def edit(manifest):
            for tensor in manifest["tensors"]:
                if tensor["name"].endswith("mlp.experts.up.weight"):
                    tensor["shape"] = merge(tensor["shape"], False)
                    for piece in tensor["pieces"]:
                        self.assertEqual(piece["offset"][1:3], [0, 0])
                        piece.update(offset=merge(piece["offset"], True), extent=merge(piece["extent"], False))
        self.refused("moe", edit, "mlp.experts.up.weight: written by an earlier version as [4, 16, 4], now [4, 2, 8, 4]: with the version that "
                     "wrote it, convert the weights to Hugging Face's files (trifold convert), and import those with this one")


def of_version(archive):
    return type(f"Version_{archive.name.split('.')[0]}", (Kept, ProgramTest), {"archive": archive, "__module__": __name__})


for found_archive in ARCHIVES:
    globals()[f"Version_{found_archive.name.split('.')[0]}"] = of_version(found_archive)

if __name__ == "__main__":
    unittest.main()
