"""The kinds of files that commands read: for each a folder of good ones, which of them is changed, and the command."""

import bz2
import gzip
import json
import lzma
import pathlib
import random
import shutil
import struct
import subprocess
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
ONE = ["--threads-per-rank", "1"]
GPT = ("--num-layers 1 --hidden-size 8 --num-attention-heads 2 --seq-length 8 --micro-batch-size 1 --global-batch-size 1 "
       "--lr 1e-3 --lr-decay-style constant --split 1,0,0").split() + ONE
BERT = ("--model-type bert --num-layers 1 --hidden-size 8 --num-attention-heads 2 --seq-length 16 --max-position-embeddings 16 "
        "--micro-batch-size 2 --lr 1e-3").split() + ONE
DLRM = ("--embedding-dim 4 --bottom-mlp 4 --top-mlp 4-1 --global-batch-size 4 --lr 0.1 --train-iters 1 --valid-samples 0").split() + ONE


def again(command):
    """The command with a second step to do."""
    at = command.index("--train-iters") + 1
    return [*command[:at], 2, *command[at + 1:]]


class Target:
    def __init__(self, name, files, victim, command, **how):
        self.name, self.files, self.victim, self.command = name, files, victim, command
        self.is_json = how.get("is_json", False)
        self.is_text = how.get("is_text", self.is_json)
        self.lines = how.get("lines", False)        # one JSON object a line
        self.seal = how.get("seal", "")             # manifest, safetensors, gzip, xz, bzip2
        self.most_places = how.get("most_places", 12)  # fields that get values of other types
        self.memory = self.seconds = 0


class Maker:
    def __init__(self, trifold, folder):
        self.trifold, self.folder, self.targets = trifold, folder, []

    def new(self, name):
        place = self.folder / name
        place.mkdir(parents=True)
        return place

    def call(self, place, *arguments):
        subprocess.run([self.trifold, *map(str, arguments)], cwd=place, check=True, capture_output=True)

    def add(self, name, files, victim, *command, **how):
        self.targets.append(Target(name, files, victim, [self.trifold, *map(str, command)], **how))


def make_targets(trifold, folder):
    maker = Maker(trifold, folder)
    for make in (checkpoints, hugging_face, tokenizers, token_files, texts, tasks, clicks, recommenders, plans):
        make(maker)
    return maker.targets


def checkpoints(maker):
    files = maker.new("checkpoint")
    (files / "text").write_text("To be, or not to be, that is the question.\n" * 20)
    maker.call(files, "pretrain", *GPT, "--data-path", "text", "--train-iters", 1, "--save", "run")
    step = "run/step_0000000001"
    generate = ["generate", "--load", "run", "--prompt", "x", "--max-new-tokens", 1, *ONE]
    maker.add("manifest", files, step + "/manifest.json", "inspect", "run", is_json=True, seal="manifest", most_places=40)
    maker.add("manifest_generate", files, step + "/manifest.json", *generate, is_json=True, seal="manifest", most_places=60)
    maker.add("manifest_resume", files, step + "/manifest.json", "pretrain", *GPT, "--data-path", "text", "--train-iters", 2, "--load", "run",
              is_json=True, seal="manifest", most_places=40)
    maker.add("latest", files, "run/LATEST", "inspect", "run", is_text=True)
    maker.add("shard", files, step + "/shard_00000.h5", *generate)


def hugging_face(maker):
    for name, victims in (("hf_gpt2", ["config.json", "model.safetensors"]),
                          ("hf_llama", ["config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors"]),
                          ("hf_bert", ["config.json", "model.safetensors"])):
        files = maker.new(name)
        shutil.copytree(GOLDEN / name, files / "model")
        for victim in victims:
            if (files / "model" / victim).exists():
                maker.add(f"{name}_{victim.split('.')[0][:12]}{'_index' if 'index' in victim else ''}{victim[-5:].replace('.', '_')}", files,
                          "model/" + victim, "convert", "--load", "model", "--save", "out", is_json=True,
                          seal="safetensors" if victim.endswith(".safetensors") else "", most_places=24)


def tokenizers(maker):
    found = sorted((GOLDEN / "hf_tokenizers").rglob("*.json"))
    small = sorted((path for path in found if b'"model"' in path.read_bytes()), key=lambda path: path.stat().st_size)
    for number, source in enumerate(small[:3]):
        files = maker.new(f"tokenizer{number}")
        (files / "text").write_text("Words, 123 words and more.\n" * 5)
        shutil.copyfile(source, files / "tokenizer.json")
        maker.add(f"tokenizer_{source.stem}", files, "tokenizer.json", "tokenize", "--input", "text", "--output-prefix", "out",
                  "--tokenizer-type", "huggingface", "--tokenizer-model", "tokenizer.json", is_json=True, most_places=30)
    families = json.loads((GOLDEN / "hf_tokenizers" / "families.json").read_text(encoding="utf-8"))
    lines = "".join(f"{token} {rank}\n" for rank, token in enumerate(families["ranks"]))
    parts = families["tokenizers"]
    for name, kind, content in (("gemma", "huggingface", json.dumps(parts["gemma"]["json"])), ("tekken", "tiktoken", json.dumps(families["tekken"]["json"])),
                                ("xlm_roberta", "huggingface", json.dumps(parts["xlm_roberta"]["json"])), ("ranks", "tiktoken", lines)):
        files = maker.new(f"tokenizer_{name}")
        (files / "text").write_text("Words, 123 words and more.\n" * 5)
        (files / "file").write_text(content, encoding="utf-8")
        maker.add(f"tokenizer_{name}", files, "file", "tokenize", "--input", "text", "--output-prefix", "out", "--tokenizer-type", kind,
                  "--tokenizer-model", "file", *(["--tiktoken-pattern", "cl100k"] if name == "ranks" else []), is_json=name != "ranks",
                  most_places=30)
    files = maker.new("sentencepiece")
    (files / "text").write_text("Words, 123 words and more.\n" * 5)
    shutil.copyfile(ROOT / "tests" / "data" / "shakespeare_400.model", files / "pieces.model")
    maker.add("sentencepiece", files, "pieces.model", "tokenize", "--input", "text", "--output-prefix", "out",
              "--tokenizer-type", "sentencepiece", "--tokenizer-model", "pieces.model")


def token_files(maker):
    files = maker.new("indexed")
    tokens = [i % 50 for i in range(200)]
    (files / "d.bin").write_bytes(struct.pack("<200H", *tokens))
    (files / "d.idx").write_bytes(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 2, 3) + struct.pack("<2i", 120, 80) +
                                  struct.pack("<2q", 0, 240) + struct.pack("<3q", 0, 1, 2))
    for victim in ("d.idx", "d.bin"):
        maker.add("indexed_" + victim[2:], files, victim, "pretrain", *GPT, "--vocab-size", 64, "--data-path", "d", "--train-iters", 1)


def texts(maker):
    files = maker.new("text")
    text = "".join(f"Line {i} of a text that is not long.\n" for i in range(40))
    lines = "".join(json.dumps({"text": f"Line {i} of a text.", "id": i, "more": [{"a": None}]}) + "\n" for i in range(40))
    (files / "t.txt").write_text(text)
    (files / "t.jsonl").write_text(lines)
    (files / "t.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (files / "t.txt.gz").write_bytes(gzip.compress(text.encode()))
    train = ["pretrain", *GPT, "--train-iters", 1, "--data-path"]
    maker.add("text", files, "t.txt", *train, "t.txt", is_text=True)
    maker.add("text_gz", files, "t.txt.gz", *train, "t.txt.gz", is_text=True, seal="gzip")
    (files / "t.txt.xz").write_bytes(lzma.compress(text.encode()))
    (files / "t.jsonl.bz2").write_bytes(bz2.compress(lines.encode()))
    maker.add("text_xz", files, "t.txt.xz", *train, "t.txt.xz", is_text=True, seal="xz")
    maker.add("json_lines_bz2", files, "t.jsonl.bz2", *train, "t.jsonl.bz2", is_json=True, lines=True, seal="bzip2")
    maker.add("json_lines", files, "t.jsonl", *train, "t.jsonl", is_json=True, lines=True)
    maker.add("json_lines_gz", files, "t.jsonl.gz", *train, "t.jsonl.gz", is_json=True, lines=True, seal="gzip")
    if shutil.which("zstd"):
        subprocess.run(["zstd", "-q", files / "t.jsonl", "-o", files / "t.jsonl.zst"], check=True)
        maker.add("json_lines_zst", files, "t.jsonl.zst", *train, "t.jsonl.zst")
    maker.add("tokenize_json", files, "t.jsonl", "tokenize", "--input", "t.jsonl", "--output-prefix", "out", "--tokenizer-type", "byte",
              is_json=True, lines=True)
    (files / "run.cfg").write_text("[model]\nnum-layers = 1  # one\nhidden-size = 8\nnum-attention-heads = 2\nseq-length = 8\n\n[data]\n"
                                   "data-path = \"t.txt\"\n[training]\nlr = 1e-3\nmicro-batch-size = 1\ntrain-iters = 1\nlr-decay-style = constant\n")
    maker.add("options", files, "run.cfg", "pretrain", "--config", "run.cfg", "--print-config", is_text=True)


def tasks(maker):
    files = maker.new("tasks")
    words = random.Random(1)
    text = "\n\n".join("\n".join(" ".join(words.choice(("cat", "dog", "sun")) for _ in range(4)) for _ in range(6)) for _ in range(8))
    (files / "text").write_text(text)
    maker.call(files, "pretrain", *BERT, "--data-path", "text", "--train-iters", 1, "--save", "bert")
    maker.add("bert_text", files, "text", "pretrain", *BERT, "--data-path", "text", "--train-iters", 1, is_text=True)
    rows = [(words.choice("ab"), words.choice(("cat sun", "dog"))) for _ in range(8)]
    (files / "c.tsv").write_text("label\ttext\n" + "".join(f"{label}\t{row}\n" for label, row in rows))
    (files / "c.jsonl").write_text("".join(json.dumps({"label": label, "text": row}) + "\n" for label, row in rows))
    paragraphs = [{"context": "the cat sun", "qas": [{"id": str(i), "question": "who", "is_impossible": False,
                                                     "answers": [{"text": "cat", "answer_start": 4}]}]} for i in range(4)]
    (files / "squad.json").write_text(json.dumps({"version": "2.0", "data": [{"title": "x", "paragraphs": paragraphs}]}))
    tune = ["finetune", "--load", "bert", "--micro-batch-size", 2, "--lr", "1e-3", "--lr-decay-style", "constant", "--train-iters", 1, *ONE]
    maker.add("classify_tsv", files, "c.tsv", *tune, "--task", "classify", "--train-data", "c.tsv", is_text=True)
    maker.add("classify_json", files, "c.jsonl", *tune, "--task", "classify", "--train-data", "c.jsonl", is_json=True, lines=True)
    squad_tune = [*tune, "--task", "squad", "--train-data", "squad.json", "--max-query-length", 4, "--doc-stride", 4]
    maker.add("squad", files, "squad.json", *squad_tune, is_json=True, most_places=30)


def clicks(maker):
    files = maker.new("clicks")
    numbers = random.Random(2)

    def line(separator):
        return separator.join([str(numbers.randrange(2)), *(str(numbers.randrange(9)) for _ in range(13)),
                               *(f"{numbers.randrange(20):08x}" for _ in range(26))])

    (files / "day.tsv").write_text("".join(line("\t") + "\n" for _ in range(40)))
    maker.call(files, "preprocess", "--input", "day.tsv", "--output", "folder", "--threads", 1)
    maker.add("preprocess_tsv", files, "day.tsv", "preprocess", "--input", "day.tsv", "--output", "out", "--threads", 1, is_text=True)
    maker.add("clicks_tsv", files, "day.tsv", "recommend", *DLRM, "--train-data", "day.tsv", "--table-rows", 50, is_text=True)
    header = ",".join(["label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))])
    (files / "day.csv").write_text(header + "\n" + "".join(line(",") + "\n" for _ in range(40)))
    csv = ["--data-format", "csv-hex"]
    maker.add("preprocess_csv", files, "day.csv", "preprocess", "--input", "day.csv", *csv, "--output", "out", "--threads", 1, is_text=True)
    maker.add("clicks_csv", files, "day.csv", "recommend", *DLRM, "--train-data", "day.csv", *csv, "--table-rows", 50, is_text=True)
    maker.add("dictionary", files, "folder/C1.dict", "preprocess", "--input", "day.tsv", "--dictionaries-of", "folder", "--output", "out", "--threads", 1)
    (files / "named.csv").write_text("y,a,b,c\n" + "".join(f'{i % 2},{i / 3},"b, ""{i % 5}""",c{i % 7}\n' for i in range(40)))
    (files / "named.csv.gz").write_bytes(gzip.compress((files / "named.csv").read_bytes()))
    named = ["--label", "y>=1", "--dense", "a", "--sparse", "b,c", "--output", "out", "--threads", 1]
    maker.add("preprocess_named", files, "named.csv", "preprocess", "--input", "named.csv", *named, is_text=True)
    maker.add("preprocess_named_gz", files, "named.csv.gz", "preprocess", "--input", "named.csv.gz", *named, is_text=True, seal="gzip")
    (files / "tabs.tsv").write_text("\ny\ta\tb\tc\n" + "".join(f'{i % 2}\t+{i}.5\t"{i % 5}" b \t{i % 7}.0\n\n' for i in range(40)))
    maker.add("preprocess_tabs", files, "tabs.tsv", "preprocess", "--input", "tabs.tsv", *named, "--separator", "tab", "--missing-values", -1, "3.5", is_text=True)
    maker.add("preprocess_plain_tabs", files, "tabs.tsv", "preprocess", "--input", "tabs.tsv", *named, "--separator", "tab", "--quoting", "none", "--max-malformed", 1,
              is_text=True)
    (files / "parts").mkdir()
    (files / "parts/a.csv").write_text("")
    (files / "parts/b.csv").write_bytes((files / "named.csv").read_bytes())
    maker.add("preprocess_parts", files, "parts/b.csv", "preprocess", "--input", "parts", *named, is_text=True)
    shapes = {"y": ("i4", "(40,)", 160), "X_int": ("i4", "(40, 3)", 480), "X_cat": ("f8", "(40, 2)", 640)}
    for name, method in (("packed", zipfile.ZIP_DEFLATED), ("stored", zipfile.ZIP_STORED)):
        with zipfile.ZipFile(files / f"{name}.npz", "w", method) as archive:
            for member, (kind, shape, size) in shapes.items():
                header = f"{{'descr': '<{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
                archive.writestr(f"{member}.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(size))
        maker.add(f"preprocess_npz_{name}", files, f"{name}.npz", "preprocess", "--input", f"{name}.npz", "--output", "out", "--threads", 1)
    folder = ["recommend", *DLRM, "--train-data", "folder"]
    maker.call(files, *folder, "--save", "run")
    maker.add("manifest_score", files, "run/step_0000000001/manifest.json", "score", "--load", "run", "--data", "folder", "--output", "-",
              "--global-batch-size", 16, *ONE, is_json=True, seal="manifest", most_places=60)
    maker.add("manifest_recommend", files, "run/step_0000000001/manifest.json", *again(folder), "--load", "run", is_json=True,
              seal="manifest", most_places=60)
    maker.add("clicks_json", files, "folder/clicks.json", *folder, is_json=True, most_places=30)
    for victim in sorted((files / "folder").iterdir()):
        if victim.suffix == ".ids" or victim.name in ("labels.bin", "dense.bin", "labels", "dense"):
            maker.add("clicks_" + victim.name.replace(".", "_"), files, "folder/" + victim.name, *folder)
            if victim.suffix == ".ids":
                break


# HugeCTR's Norm records with and without sums, of one label, a dense number and two slots.
def norm_file(sums):
    def block(content):
        return struct.pack("<i", len(content)) + content + bytes([sum(content) % 256]) if sums else content

    records = (struct.pack("<2f", i % 2, i / 4) + struct.pack("<iq", 1, i + 1) + struct.pack("<i2q", 2, i % 3, 7) for i in range(30))
    return block(struct.pack("<8q", sums, 30, 1, 1, 2, 0, 0, 0)) + b"".join(map(block, records))


def recommenders(maker):
    files = maker.new("recommenders")
    for name, sums in (("norm", 0), ("norm_sums", 1)):
        (files / f"{name}.data").write_bytes(norm_file(sums))
        maker.add(f"preprocess_{name}", files, f"{name}.data", "preprocess", "--input", f"{name}.data", "--output", "out", "--threads", 1)
    (files / "bags.csv").write_text("y,a,item,seen\n" + "".join(f"{i % 2},{i},i{i % 5},i{i % 5}:0.5|i{i % 3}:2\n" for i in range(40)))
    columns = ["--label", "y", "--dense", "a", "--sparse", "item", "--bag", "seen:|", "--bag-weights", "seen", "--threads", 1]
    maker.add("preprocess_bags", files, "bags.csv", "preprocess", "--input", "bags.csv", "--output", "out", *columns, is_text=True)
    (files / "bare.data").write_text("".join(f"{i % 2}, {i}, w{i % 5}\n" for i in range(40)))
    maker.add("preprocess_bare", files, "bare.data", "preprocess", "--input", "bare.data", "--output", "out", "--columns", "y,a,b", "--label", "y",
              "--dense", "a", "--sparse", "b", "--threads", 1, is_text=True)
    (files / "plain.csv").write_text("y,a,item,seen\n" + "".join(f"{i % 2},{i},i{i % 5},i{i % 5}|i{i % 3}\n" for i in range(40)))
    plain = [*columns[:8], "--threads", 1]
    maker.call(files, "preprocess", "--input", "plain.csv", "--output", "shared", *plain, "--share-table", "seen:item")
    maker.call(files, "preprocess", "--input", "plain.csv", "--output", "keys", *plain, "--ids", "keys")
    attends = ["recommend", *DLRM, "--train-data", "shared", "--attention", "seen:item", "--interaction", "cat"]
    keyed = ["recommend", *DLRM, "--train-data", "keys", "--table-rows", "20-20"]
    for name, train in (("shared", attends), ("keys", keyed)):
        maker.add(f"{name}_json", files, f"{name}/clicks.json", *train, is_json=True, most_places=40)
        for victim in ("seen.ids", "seen.ends"):
            maker.add(f"{name}_{victim.replace('.', '_')}", files, f"{name}/{victim}", *train)
    maker.call(files, *attends, "--save", "run")
    maker.call(files, "convert", "--load", "run", "--save", "weights.safetensors")
    maker.add("init_weights", files, "weights.safetensors", *attends, "--init-weights", "weights.safetensors", is_json=True, seal="safetensors",
              most_places=40)
    maker.call(files, *keyed, "--save", "keyed")
    maker.add("manifest_keys", files, "keyed/step_0000000001/manifest.json", "score", "--load", "keyed", "--data", "keys", "--output", "-",
              "--global-batch-size", 16, *ONE, is_json=True, seal="manifest", most_places=40)
    maker.add("manifest_keys_resume", files, "keyed/step_0000000001/manifest.json", *again(keyed), "--load", "keyed", is_json=True,
              seal="manifest", most_places=60)
    maker.add("changed_since", files, "run/step_0000000001/manifest.json", "convert", "--load", "run", "--save", "change.safetensors",
              "--changed-since", "run", is_json=True, seal="manifest", most_places=40)


def plans(maker):
    files = maker.new("plans")
    shutil.copyfile(GOLDEN / "zb1p_2rank_2stagep_compute.csv", files / "plan.csv")
    shape = ("--num-layers 2 --hidden-size 8 --num-attention-heads 2 --seq-length 8 --micro-batch-size 1 --lr 1e-3 --vocab-size 64 "
             "--train-iters 1").split()
    (files / "lines").write_text(" ".join([*map(str, shape), "--global-batch-size", "4", "--ranks", "2"]) + "\n# two runs\n" +
                                 " ".join([*map(str, shape), "--global-batch-size", "8"]) + "\n")
    maker.add("plan_lines", files, "lines", "plan-lines", "--lines", "lines", is_text=True)
    two = [*shape, "--ranks", 2, "--pp", 2]
    for batch in range(1, 33):
        done = subprocess.run([maker.trifold, "plan", *map(str, two), "--schedule", "plan.csv", "--global-batch-size", str(batch)], cwd=files,
                              capture_output=True, check=False)
        if done.returncode == 0:
            maker.add("schedule", files, "plan.csv", "plan", *two, "--schedule", "plan.csv", "--global-batch-size", batch, is_text=True)
            break
    maker.call(files, "bench", "--what", "blocks", *shape[:10], "--vocab-size", 64, "--iters", 1, "--json", "costs.json", *ONE)
    maker.add("costs", files, "costs.json", "plan", *shape, "--global-batch-size", 1, "--costs", "costs.json", is_json=True, most_places=30)
