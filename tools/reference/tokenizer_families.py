#!/usr/bin/env python3
"""Compares token ids with the libraries of open families on 2 MB of odd Unicode, and writes what tests compare with.

Run from the top level (pip install tokenizers==0.23.3 tiktoken mistral_common sentencepiece protobuf):
    python3 tools/reference/tokenizer_families.py                            writes tests/golden/hf_tokenizers/families.json
    python3 tools/reference/tokenizer_families.py compare TRIFOLD [SEED [NAME ...]]

Published tokenizers have normalizers, pre-tokenizers, patterns, decoders and special tokens of a family; those here have the
same, and vocabularies that are small and trained on a part of the shipped text. `compare` also takes Mistral's own files, which
mistral_common has, and Unigram models with SentencePiece's map of characters. The ids are those of encode(text,
add_special_tokens=False), with special tokens as such, and for tiktoken and Mistral with special tokens as text.
"""
import array
import base64
import io
import json
import pathlib
import random
import subprocess
import sys
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

OUT = pathlib.Path("tests/golden/hf_tokenizers/families.json")
PLAY = pathlib.Path("data/tinyshakespeare.txt").read_text(encoding="utf-8")
CHAT = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "<bos>", "<start_of_turn>", "<|user|>", "[INST]", "[gMASK]", "<sop>",
        "<|eot_id|>", "<｜begin▁of▁sentence｜>", "<mask>", "[MASK]", "<unk>", "<pad>", "<0x0A>", "<|start|>", "<|fim_prefix|>", "<SPECIAL_20>"]
OTHERS = ("Füße größer naïve café; été 1999/12/31 — “so” … №5 ½ ². Привет, мир! Ελληνικά λόγος. שלום עולם. مرحبا بالعالم ١٢٣. नमस्ते "
          "दुनिया। こんにちは世界、東京。 한국어 문장. 你好，世界！ ไทย 👩‍👩‍👧 for (int i = 0; i < n; ++i) {\n\tif (x[i]) return -1;\n}\n\n    // don't\r\n") * 8

LLAMA = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")
QWEN = LLAMA.replace("{1,3}", "")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
          r"|\s+(?!\S)|\s")
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
HAN = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
SMALL = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
KIMI = (rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?{HAN}*{SMALL}+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        rf"|[^\r\n\p{{L}}\p{{N}}]?{HAN}+{SMALL}*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+")
V1 = r"[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+"
            r"|\s+(?!\S)|\s+")


def tokens(*texts, **options):
    return [AddedToken(text, special=True, **{"normalized": False, **options}) for text in texts]


def byte_level(pieces, special, normalizer=None, size=420, prefix=False, regex=False, whole=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=whole))
    last = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*pieces, last]) if pieces else last
    if normalizer:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([PLAY[:100000], OTHERS], trainer)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(special)
    return tokenizer


def split(pattern, behavior="isolated"):
    return pre_tokenizers.Split(Regex(pattern), behavior)


def characters(normalizer, pre_tokenizer, decoder, special, size=560):
    """BPE of characters that falls back to bytes, as SentencePiece's models become in a tokenizer.json."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    first = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, special_tokens=first, limit_alphabet=120)
    # Lines alone: a text that is one word makes tokens of several words.
    tokenizer.train_from_iterator((PLAY[:60000] + OTHERS).splitlines(), trainer)
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [token for token in data["added_tokens"] if not token["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.decoder = decoder
    tokenizer.add_tokens(special)
    return tokenizer


def space_decoder():
    return decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])


def gpt2():
    return byte_level([], tokens("<|endoftext|>"), regex=True)


def llama3():
    return byte_level([split(LLAMA)], tokens("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"), whole=True)


def qwen2():
    return byte_level([split(QWEN)], tokens("<|endoftext|>", "<|im_start|>", "<|im_end|>") + [AddedToken("<tool_call>", normalized=False)],
                      normalizers.NFC())


def tekken_json():
    return byte_level([split(TEKKEN)], tokens("<unk>", "<s>", "</s>", "[INST]"), whole=True)


def gpt_oss():
    return byte_level([split(O200K)], tokens("<|startoftext|>", "<|endoftext|>", "<|start|>", "<|end|>"))


def phi4():
    return byte_level([split(CL100K)], tokens("<|endoftext|>", rstrip=True) + tokens("<|im_start|>", "<|user|>", lstrip=True, rstrip=True))


def deepseek():
    return byte_level([split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK)],
                      tokens("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>") + [AddedToken("<think>", normalized=True)])


def deepseek_v2():
    return byte_level([split(r"[\r\n]"), split(r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆ]+"),
                       split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"), split(r"\s+$"), split("[一-龥ࠀ-一가-퟿]+"),
                       pre_tokenizers.Digits(individual_digits=True)], tokens("<｜begin▁of▁sentence｜>"))


def glm4():
    return byte_level([split(LLAMA)], tokens("<|endoftext|>", "[MASK]", "[gMASK]", "<sop>", "<|user|>"))


def starcoder2():
    return byte_level([pre_tokenizers.Digits(individual_digits=True)], tokens("<|endoftext|>", "<|fim_prefix|>"), regex=True)


def modern_bert():
    blanks = [AddedToken(" " * n, normalized=True) for n in range(2, 25)]
    return byte_level([], blanks + tokens("<|padding|>", "[CLS]", "[SEP]") + tokens("[MASK]", lstrip=True), normalizers.NFC(), regex=True)


def roberta():
    return byte_level([], tokens("<s>", "</s>", "<pad>", normalized=True) + tokens("<mask>", lstrip=True), prefix=True, regex=True)


def gemma():
    tokenizer = characters(normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous"),
                           decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]),
                           tokens("<bos>", "<start_of_turn>", "<end_of_turn>"))
    tokenizer.add_tokens([AddedToken("\n" * n, normalized=False) for n in range(1, 8)] + [AddedToken("▁" * n, normalized=False) for n in range(2, 8)])
    return tokenizer


def mistral():
    return characters(normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None, space_decoder(), tokens("[INST]"))


def mistral_metaspace():
    return characters(None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False), space_decoder(), tokens("[INST]", "<|user|>"))


def phi3():
    return characters(normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None, space_decoder(),
                      tokens("<|endoftext|>") + tokens("<|user|>", "<|end|>", rstrip=True))


def character_map(rule=None, table=None):
    """SentencePiece's map of characters, of a named rule or of a table of replacements, in base64."""
    import sentencepiece
    made = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        options = {"normalization_rule_name": rule} if rule else {}
        if table:
            file = pathlib.Path(folder, "rules.tsv")
            file.write_text("".join(" ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n" for a, b in table.items()),
                            encoding="utf-8")
            options = {"normalization_rule_tsv": str(file)}
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(PLAY[:20000].splitlines()), model_writer=made, vocab_size=200,
                                                 minloglevel=2, **options)
    from sentencepiece import sentencepiece_model_pb2
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(made.getvalue())
    return base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()


def unigram(charsmap, pre_tokenizer, later=()):
    tokenizer = Tokenizer(models.Unigram())
    normalizer = normalizers.Precompiled(base64.b64decode(charsmap))
    tokenizer.normalizer = normalizers.Sequence([normalizer, *later]) if later else normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.UnigramTrainer(vocab_size=400, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator([line for line in (PLAY[:100000] + OTHERS).splitlines()], trainer)
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_tokens(tokens("<mask>", lstrip=True))
    return tokenizer


# A small map, with what a whole one has: white space, sequences, removed characters, longer and shorter replacements.
MAP = {"\t": " ", "\n": " ", "\r": " ", "\u00a0": " ", "\u3000": " ", "\u200b": "", "ﬁ": "fi", "ﬀ": "ff", "ⅷ": "viii", "½": "1⁄2", "²": "2", "…": "...",
       "e\u0301": "é", "A\u030a": "Å", "①": "1", "Ａ": "A", "ｱ": "ア", "\u200d": " ", "㎞": "km", "ﷺ": "صلى الله", "\x7f": "", "…\u0301": "x"}


def xlm_roberta():
    return unigram(character_map(table=MAP), pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]))


def whole_map():
    return unigram(character_map(rule="nmt_nfkc"), pre_tokenizers.Metaspace(prepend_scheme="always"),
                   [normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "▁")])


GOLDEN = (qwen2, tekken_json, gpt_oss, phi4, deepseek, deepseek_v2, starcoder2, modern_bert, roberta, gemma, mistral, mistral_metaspace, phi3,
          xlm_roberta)
COMPARED = (gpt2, llama3, glm4, whole_map)


def odd_texts(size, seed):
    """Texts of odd characters, `size` bytes together."""
    rng = random.Random(seed)
    words = PLAY[:50000].split() + OTHERS.split() + CHAT
    blocks = [(0x20, 0x7e), (0xa0, 0x24f), (0x300, 0x36f), (0x370, 0x52f), (0x590, 0x6ff), (0x900, 0xdff), (0xe00, 0x10ff), (0x1100, 0x11ff),
              (0x1ab0, 0x1aff), (0x1e00, 0x1fff), (0x2000, 0x206f), (0x20a0, 0x218f), (0x2500, 0x27bf), (0x3000, 0x30ff), (0x4e00, 0x9fff),
              (0xac00, 0xd7a3), (0xe000, 0xe0ff), (0xf900, 0xffff), (0x10000, 0x1ffff), (0x1d400, 0x1d7ff), (0x1f1e6, 0x1f1ff), (0x1f300, 0x1faff),
              (0x20000, 0x3ffff), (0xe0000, 0xe01ef), (0xf0000, 0x10ffff)]
    digits = "0123456789٣०௧๕Ⅷ²½𝟙"
    joined = ["👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫", "👍🏽", "e\u0301\u0323", "ö\u0308", "\u1100\u1161\u11a8", "क्षि", "ﷺ", "\r\n", "\r\n\r\n", "\u00a0", "\u2028", "\x00", "\ufeff",
              "\u200d", "\u0085", "'s", "'LL", "'ſ", "’s", "I'M", "©\u200d©", "\u0600a", "ﬁ\u0301", "½\u0301"]

    def any_character():
        if rng.random() < 0.3:
            code = rng.randrange(0x110000)
            return chr(code) if not 0xd800 <= code < 0xe000 else "\ufffd"
        return chr(rng.randint(*rng.choice(blocks)))

    kinds = [lambda: rng.choice(words) + rng.choice(["", " ", " ", "\n"]), any_character,
             lambda: "".join(chr(rng.randint(*rng.choice(blocks))) for _ in range(rng.randint(1, 6))),
             lambda: chr(rng.choice([0x61, 0x65, 0x4f, 0x915, 0x3042])) + "".join(chr(rng.randint(0x300, 0x36f)) for _ in range(rng.randint(1, 4))),
             lambda: "".join(rng.choice(digits) for _ in range(rng.randint(1, 9))), lambda: " " * rng.choice([1, 2, 3, 5, 17, 80]),
             lambda: rng.choice("\n\t\r\u3000 ") * rng.randint(1, 4), lambda: rng.choice(joined), lambda: rng.choice(CHAT)]
    weights = [8, 4, 3, 2, 2, 2, 2, 2, 1]
    texts, made = ["", " ", "\n", "a", "<s>"], 0
    while made < size:
        text, most = "", rng.choice([40, 200, 1000, 6000])
        while len(text) < most:
            text += rng.choices(kinds, weights)[0]()
        texts.append(text)
        made += len(text.encode())
    return texts


def fnv(data):
    value = 0xcbf29ce484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001b3) & 0xffffffffffffffff
    return f"{value:016x}"


def hash_of(ids):
    return fnv(array.array("I", ids).tobytes())


def ids_of_program(program, texts, file, vocabulary, options):
    with tempfile.TemporaryDirectory() as folder:
        lines = pathlib.Path(folder, "texts.jsonl")
        lines.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
        subprocess.run([program, "tokenize", "--input", lines, "--output-prefix", f"{folder}/out", "--tokenizer-model", file, *options],
                       check=True, capture_output=True)
        return array.array("H" if vocabulary < 65500 else "i", pathlib.Path(folder, "out_text_document.bin").read_bytes()).tolist()


def expect_equal(name, made, expected):
    if made != expected:
        first = next((i for i, (a, b) in enumerate(zip(made, expected)) if a != b), min(len(made), len(expected)))
        print(f"{name}: token {first} of {len(made)} differs: {made[first:first + 8]}, the library makes {expected[first:first + 8]} of "
              f"{len(expected)}", flush=True)
        return False
    print(f"{name}: {len(made)} tokens, all equal", flush=True)
    return True


PATTERNS = dict(gpt2=GPT2, cl100k=CL100K, o200k=O200K, llama3=LLAMA, qwen=QWEN, kimi=KIMI, v1=V1, v2=TEKKEN)
SPECIAL = ["<|endoftext|>", "<|im_end|>"]


def small_ranks():
    """The tokens of a trained byte-level BPE, as bytes in the order of their ranks."""
    back = {c: b for b, c in byte_characters().items()}
    trained = json.loads(byte_level([split(LLAMA)], []).to_str())["model"]["vocab"]
    single = sorted((token for token in trained if len(token) == 1), key=lambda token: back[token])
    merged = sorted((token for token in trained if len(token) > 1), key=trained.get)
    return [bytes(back[c] for c in token) for token in single + merged]


def ids_of_tiktoken(ranks, pattern, texts):
    """Ids with special tokens as text, and as such."""
    import tiktoken
    encoding = tiktoken.Encoding("small", pat_str=pattern, mergeable_ranks={token: rank for rank, token in enumerate(ranks)},
                                 special_tokens={token: len(ranks) + i for i, token in enumerate(SPECIAL)})
    return {"text": [encoding.encode(text, disallowed_special=()) for text in texts],
            "encode": [encoding.encode(text, allowed_special="all") for text in texts]}


def tiktoken_cases(folder, texts):
    """Files of tiktoken as name, file, vocabulary, ids, options."""
    ranks, file = small_ranks(), pathlib.Path(folder, "small.tiktoken")
    file.write_text("".join(f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(ranks)))
    for name, pattern in PATTERNS.items():
        for policy, ids in ids_of_tiktoken(ranks, pattern, texts).items():
            yield (f"tiktoken {name}, special tokens: {policy}", file, len(ranks) + 2, sum(ids, []),
                   ["--tokenizer-type", "tiktoken", "--tiktoken-pattern", name, "--tiktoken-special-tokens", *SPECIAL,
                    "--special-tokens-in-text", policy])


def small_tekken(ranks):
    return {"config": {"pattern": TEKKEN, "num_vocab_tokens": len(ranks), "default_vocab_size": len(ranks) + 20, "default_num_special_tokens": 30,
                       "version": "v3"},
            "vocab": [{"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None} for rank, token in enumerate(ranks)]}


def byte_characters():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def mistral_cases(texts):
    import mistral_common
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer
    for file in sorted(pathlib.Path(mistral_common.__file__).parent.glob("data/tekken*.json")):
        tekken = Tekkenizer.from_file(file)
        yield (file.name, file, tekken.n_words, [i for t in texts for i in tekken.encode(t, bos=False, eos=False)],
               ["--tokenizer-type", "tiktoken", "--special-tokens-in-text", "text"])


def compare(program, seed, names):
    texts = odd_texts(2_000_000, seed)
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for make in GOLDEN + COMPARED:
            if names and make.__name__ not in names:
                continue
            tokenizer, file = make(), pathlib.Path(folder, make.__name__ + ".json")
            tokenizer.save(str(file))
            for policy in ("encode", "text"):
                tokenizer.encode_special_tokens = policy == "text"
                expected = [i for e in tokenizer.encode_batch(texts, add_special_tokens=False) for i in e.ids]
                made = ids_of_program(program, texts, file, tokenizer.get_vocab_size(),
                                      ["--tokenizer-type", "huggingface", "--special-tokens-in-text", policy])
                good = expect_equal(f"{make.__name__}, special tokens: {policy}", made, expected) and good
        for name, case in (("tiktoken", lambda: tiktoken_cases(folder, texts)), ("mistral_common", lambda: mistral_cases(texts))):
            for label, file, vocabulary, expected, options in case() if not names or name in names else ():
                good = expect_equal(label, ids_of_program(program, texts, file, vocabulary, options), expected) and good
    sys.exit(0 if good else 1)


def main():
    texts = odd_texts(20000, 7)
    made = {"texts": texts, "tokenizers": {}}
    for make in GOLDEN:
        tokenizer = make()
        data = json.loads(tokenizer.to_str())
        encoded = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        tokenizer.encode_special_tokens = True
        as_text = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        tokenizer.encode_special_tokens = False
        made["tokenizers"][make.__name__] = {
            "json": data,
            "ids": [hash_of(ids) for ids in encoded],
            "ids_as_text": [hash_of(ids) for ids in as_text],
            "decoded": [fnv(tokenizer.decode(ids).encode()) for ids in encoded],
        }
        document = "\n".join(texts) + PLAY
        made["tokenizers"][make.__name__]["document"] = hash_of(tokenizer.encode(document, add_special_tokens=False).ids)
    ranks = small_ranks()
    made["ranks"] = [base64.b64encode(token).decode() for token in ranks]
    made["tiktoken"] = {name: {policy: [hash_of(ids) for ids in found] for policy, found in ids_of_tiktoken(ranks, pattern, texts).items()}
                        for name, pattern in PATTERNS.items()}
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "tekken.json")
        file.write_text(json.dumps(small_tekken(ranks)))
        tekken = Tekkenizer.from_file(file)
        made["tekken"] = {"json": small_tekken(ranks), "ids": [hash_of(tekken.encode(text, bos=False, eos=False)) for text in texts]}
    OUT.write_text(json.dumps(made, ensure_ascii=True, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["compare"]:
        compare(sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 1, sys.argv[4:])
    else:
        main()
