#!/usr/bin/env python3
"""Writes tests/golden/hf_tokenizers: small tokenizer.json files, and the results of Hugging Face's `tokenizers` for odd
texts.

Run from the top level, with `tokenizers` installed (pip install tokenizers):
    python3 tools/reference/hugging_face_tokenizers.py                               writes the files
    python3 tools/reference/hugging_face_tokenizers.py patterns                      writes patterns.json alone
    python3 tools/reference/hugging_face_tokenizers.py unicode                       writes unicode.json alone
    python3 tools/reference/hugging_face_tokenizers.py compare TRIFOLD [SEED]        20 000 other texts through 'trifold tokenize'
The files hold, for each tokenizer, a hash of the ids and one of the decoded text for every text of a fuzz corpus; for
all its texts as one document; for the shipped play; and for runs of 4096 characters out of all that Unicode 14 assigns.
unicode.json holds hashes over all 1 114 112 code points but surrogates: what normalizers and pre-tokenizers make of each, and of random sequences
of characters that normal forms reorder and compose; it depends on the package's own tables (0.23.3), not on a library of the host.
patterns.json holds what regular expressions in the library's dialect, that of Oniguruma for Ruby, cut a text into.
"""
import array
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

OUT = pathlib.Path("tests/golden/hf_tokenizers")
PLAY = pathlib.Path("data/tinyshakespeare.txt").read_text(encoding="utf-8")

# The words of Llama 3, as its tokenizer.json has them.
LLAMA = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")
OTHERS = ("Füße größer naïve café Ångström déjà-vu; été 1999/12/31 — “so” … №5 ½ ². Привет, мир! Добрый день. "
          "Ελληνικά λόγος. שלום עולם. مرحبا بالعالم ١٢٣. नमस्ते दुनिया। こんにちは世界、東京。 한국어 문장. 你好，世界！"
          "for (int i = 0; i < n; ++i) {\n\tif (x[i] != 0x1F) return -1;\n}\n\n    // I'm DON'T we've\r\n") * 8


def corpus():
    return [PLAY[:200000], OTHERS]


def byte_level(size, special):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def word_pieces(lowercase, **options):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", **options))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=700, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
                                        show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def gpt2():
    return byte_level(600, ["<|endoftext|>"])


def prefixed():
    """RoBERTa's kind: a space before the first word, a mask that takes the space before it, NFKC, lower case."""
    tokenizer = byte_level(500, ["</s>"])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    tokenizer.add_tokens([AddedToken("King Henry", single_word=True), AddedToken("ZZ", rstrip=True, normalized=False)])
    return tokenizer


def llama3():
    tokenizer = byte_level(800, ["<|begin_of_text|>", "<|end_of_text|>", "<|end"])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(LLAMA), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.normalizer = normalizers.NFC()
    data = json.loads(tokenizer.to_str())
    data["model"]["ignore_merges"] = True
    # Words that no merges produce.
    for word in ("Ġmotherless", "ĠĊĊĠ", "123"):
        data["model"]["vocab"].setdefault(word, 900 + len(word))
    return Tokenizer.from_str(json.dumps(data))


def digits():
    """Qwen's and DeepSeek's kind: digits apart, cuts that join with what is before or behind; merges as one text."""
    tokenizer = byte_level(400, ["<|im_end|>"])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Split("\n", "merged_with_previous"),
         pre_tokenizers.Split(Regex(r"[(\[{]"), "merged_with_next"), pre_tokenizers.Split(" ", "contiguous"),
         pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    data = json.loads(tokenizer.to_str())
    data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]
    return Tokenizer.from_str(json.dumps(data))


def bert_uncased():
    return word_pieces(True)


def bert_cased():
    tokenizer = word_pieces(False, max_input_chars_per_word=20)
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    return tokenizer


def stripped():
    """Other cuts: white space alone, then marks; accents that were taken apart go."""
    tokenizer = word_pieces(True)
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()])
    return tokenizer


def words():
    tokenizer = word_pieces(False)
    tokenizer.normalizer = normalizers.NFKD()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


def fuzz(count, seed=20):
    rng = random.Random(seed)
    plain = PLAY.split() + OTHERS.split()
    odd = ["I'm", "DON'T", "we'Ll", "'ſ", "it’s", "x'd'd", "\n", "\n\n", "\n\n\n  ", "\r\n", "\r", "\t", "\t\t ", "  ", "   ", "\u00a0",
           "\u3000", "\u2003\u2009", "\u200b", "\ufeff", "\u0085", "\u000b\u000c", "\x00", "\x1b[0m", "\x7f", "\u00ad", "\ufffd",
           "e\u0301", "\u00e9", "A\u030a", "q\u0307\u0323", "\u1100\u1161\u11a8", "각", "한\u11a8", "ﬁn", "ſoft", "İstanbul", "I\u0307", "ß", "ẞ",
           "ΣΊΣΥΦΟΣ", "Ǆ", "ⅷ", "½", "²³", "①", "١٢٣", "१२", "𝟙𝟚", "𝒳yz", "👩‍👩‍👧‍👦", "🇩🇪", "👍🏽", "東京", "日本語です", "豈", "𠀀𫜶", "〇", "你好",
           "ไทย", "हिन्दी", "தமிழ்", "العربية", "עִבְרִית", "\u202eabc\u202c", "\ue000", "\uffff", "\U0010ffff", "\U000e0041", "\u0378", "\u0600",
           "\u180e", "<|endoftext|>", "<|end_of_text|>", "<|end", "<|", "</s>", "[MASK]", "[mask]", "[SEP]", "[ UNK ]", "<mask>",
           " <mask>", "king henry", "King Henry", "King Henrys", "KING HENRY", "ZZ", "ZZ  \n", "a" * 101, "b" * 21, "ab" * 300,
           " " * 70, "0123456789", "3.14", "1,000,000", "x=y+z;", "!!!...???", "----", "__init__", "foo_bar", "C++", "#define",
           "http://a.b/c?d=e&f", "a.b", "“q”", "‘r’", "¿Qué?", "£€¥", "~`^$|", "+<=>", "\\n", "Ω", "Å", "µ", "¼", "ª", "\u2028", "\u2029",
           " do not", " n't", " 's", " ' ", " .", " ,", "##ing", "# #", "\u0301", "\u20dd", "\u0903", "motherless", " \n\n "]
    texts = ["", " ", "\n", "a"] + odd
    while len(texts) < count:
        parts = []
        for _ in range(rng.randint(1, 12)):
            parts.append(rng.choice(odd) if rng.random() < 0.5 else rng.choice(plain))
            if rng.random() < 0.6:
                parts.append(rng.choice([" ", " ", " ", "  ", "\n", "\t"]))
        texts.append("".join(parts))
    return texts


GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
          r"|\s+(?!\S)|\s")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# Differences and common features of the dialects of regular expressions.
PATTERNS = (
    LLAMA, CL100K, O200K, r"^", r"$", r"^\w+", r"\w+$", r"^$", r"\s+$", r"\A\w+", r"\w+\s*\z", r"[^\n]+\Z", r".", r".+", r"(?m:.+)",
    r"(?m:.)", r"(?m)o.", r"(?-m:.+)", r"(?i-m:T.)", r"\h+", r"\H+", r"[\h_]+", r"\p{N}{1,3}+|\p{L}+", r"\p{L}{2}+", r"\d{2}?",
    r"\d{2,3}?", r"\d{,2}", r"\d{2,}?x?", r"\d{2}?+", r"a{", r"}", r"{", r"[a-z]{1,}{2}", r"l**", r"l+?+", r"(?:l{2,3})*", r"\p{L}++|\s++$",
    r"\bthe\b", r"\b", r"\B", r"\B.", r"\d+", r"\w+|[^\w\s]+", r"(?<=e)r", r"(?<!e)r", r"(?<=\n|e)\w", r"(?>a|ab)c", r"\S+", r"(?:^|\s)\S+",
    r"\s?[!-/:-~]+", r"[a-z&&[^aeiou]]+", r"[^a-z&&[^aeiou]]+", r"[a-e&&c-z&&[d]]", r"[a-z&&aeiou0-9]+", r"[\w&&[^\d_]]+", r"[--/]",
    r"[a\-z]", r"[-a]", r"[a-]", r"[\w-]+", r"[a-c-e]+", r"[$^&|{}()*+?.~#]+", r"[\[\]]", r"[[a-c][x-z]]+", r"[[:alpha:]]+",
    r"[[:^alpha:]]+", r"[^[:punct:]\s]+", r"[[:digit:][:space:]]+", r"[\b]", r"[\v]", r"\v", r"\t", r"\x41", r"\x{6f22}", r"[\x{4e00}-\x{9fff}]+",
    r"\u00e9", r"\012", r"\e|\a|\f", r"\R", r"\p{Han}+", r"\p{^L}+", r"\P{L}+", r"\P{^L}+", r"\p{ lowercase_letter }+", r"[\p{P}\p{S}]+",
    r"[^\p{P}\p{S}]+", r"(?i)ss|k|s", r"(?i)THE|[A-C]", r"(?i:[^t]+)", r"(?i:[a-z]+)", r"(?im:T.)|(?m-i:h.)", r"((?m)\s.)|l.", r"(?m:[^e].)", r"a(?i)B|C", r"(x|(?i)T|h)e",
    r"(?i:é)", r"(l)(?<name>o)", r"a|", r"|a", r"l*", r"(?:l*)*", r"(?=l)", r"o(?=r)|(?!\w)", r"\/|\#|\-|\ ", r"#x", r"漢+", r"[漢あ]", r"[^\S\n]+",
    r"[\S&&\W]+", r"\W+", r"\D+", r"[^\w]", r"[^\h]", r"[\r\n]+", r"'s|'t", r"")
# Sets of characters, which are tried on every assigned character.
SETS = [rf"\p{{{name}}}" for name in (
    "Alnum Alpha Blank Cntrl Digit Graph Lower Print Punct Space Upper XDigit Word ASCII Any L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No "
    "P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs C Cc Cf Letter Number Punctuation Symbol Mark Separator White_Space Alphabetic "
    "Ideographic Emoji Han Hiragana Katakana Hangul Latin Greek Cyrillic Arabic Hebrew Thai Devanagari Tamil Common Inherited").split()
] + [r"\w", r"\d", r"\s", r"\h", r"."] + [rf"[[:{name}:]]" for name in (
    "alnum alpha ascii blank cntrl digit graph lower print punct space upper xdigit word").split()]
ODD = ("Hello  the 1234567 wörld's   \n\nIT'S it's\tfoo[] #x \r\n  a112 漢字あ e\u0301r\u2028x  \n é_é \u02bcn ßſK\u00a0\u0085end\n"
       "--/+\\^$&|{}()*?.~ \x08\x0b\x0c\x1b\x07 x{2} a{ abc ac aBC llll lllo The_end 12 é-É a\u200db \u200c\r\r {name} ab\n \n")


def assigned():
    """Runs [first, last] of characters that are assigned, no surrogates and no private use; nor the one letter whose
    decomposition, new in Unicode 13, the library does not know."""
    runs = []
    for code in range(0x110000):
        if unicodedata.category(chr(code)) in ("Cn", "Cs", "Co") or code == 0x11938:
            continue
        if runs and runs[-1][1] == code - 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    return runs


def sweeps(runs):
    """Texts of 4096 characters each: alone, inside a word, doubled."""
    codes = [code for first, last in runs for code in range(first, last + 1)]
    for begin in range(0, len(codes), 4096):
        yield "".join(f"{chr(c)} a{chr(c)}b {chr(c)}{chr(c)}\n" for c in codes[begin:begin + 4096])


def fnv(data):
    value = 0xcbf29ce484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001b3) & 0xffffffffffffffff
    return f"{value:016x}"


def hash_of_ids(ids):
    return fnv(b"".join(i.to_bytes(4, "little") for i in ids))


MAKERS = (gpt2, prefixed, llama3, digits, bert_uncased, bert_cased, stripped, words)


def compare(program, seed):
    """The ids of fresh texts by the tokenizers that the golden files hold, against those of `trifold tokenize`."""
    texts = fuzz(20000, seed)
    for make in MAKERS:
        file = OUT / f"{make.__name__}.json"
        tokenizer = Tokenizer.from_file(str(file))
        expected = array.array("H")
        for encoding in tokenizer.encode_batch(texts, add_special_tokens=False):
            expected.extend(encoding.ids)
        with tempfile.TemporaryDirectory() as folder:
            lines = pathlib.Path(folder) / "texts.jsonl"
            lines.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
            subprocess.run([program, "tokenize", "--input", lines, "--output-prefix", f"{folder}/out", "--tokenizer-type",
                            "huggingface", "--tokenizer-model", file], check=True, capture_output=True)
            made = array.array("H", pathlib.Path(folder, "out_text_document.bin").read_bytes())
        if made != expected:
            first = next((i for i, (a, b) in enumerate(zip(made, expected)) if a != b), min(len(made), len(expected)))
            sys.exit(f"{make.__name__}: token {first} of {len(made)} differs, the library makes {len(expected)}")
        print(f"{make.__name__}: {len(texts)} texts, {len(made)} tokens, all equal", flush=True)


def cut(pattern, behavior, text):
    split = pre_tokenizers.Split(Regex(pattern), behavior)
    return "\x1f".join(word for word, _ in split.pre_tokenize_str(text)).encode()


def write_patterns():
    # Not those whose properties changed after Unicode 14.
    runs = [run for first, last in assigned() for run in ((first, min(last, 0x362)), (max(first, 0x370), min(last, 0x1dd2)),
            (max(first, 0x1de7), min(last, 0x1171d)), (max(first, 0x1171f), last)) if run[0] <= run[1]]
    every = "".join(chr(code) for first, last in runs for code in range(first, last + 1))
    made = {
        "text": ODD,
        "runs": runs,
        "cuts": [[pattern, behavior, fnv(cut(pattern, behavior.replace("With", "_with_").lower(), ODD))]
                 for pattern in PATTERNS for behavior in ("Isolated", "Removed", "MergedWithPrevious")],
        "sets": [[pattern, fnv(cut(pattern, "removed", every))] for pattern in SETS],
        "blanks": hash_of_ids(Tokenizer.from_file(str(OUT / "gpt2.json")).encode("a" + " " * 600000 + "b").ids),
    }
    (OUT / "patterns.json").write_text(json.dumps(made, ensure_ascii=True, separators=(",", ":")) + "\n", encoding="utf-8")


# Letters, marks, jamo and characters that decompose, for random sequences.
POOL = ((0x41, 0x5a), (0x61, 0x7a), (0xc0, 0x24f), (0x300, 0x36f), (0x300, 0x345), (0x391, 0x3c9), (0x591, 0x5c7), (0x610, 0x61a), (0x64b, 0x65f),
        (0x898, 0x8d3), (0x93c, 0x94d), (0x9be, 0x9d7), (0xc3c, 0xc56), (0xd3b, 0xd4d), (0xf71, 0xf84), (0x1100, 0x1175), (0x11a7, 0x11c2),
        (0xac00, 0xac38), (0x1ab0, 0x1ace), (0x1dc0, 0x1dff), (0x1e00, 0x1fff), (0x212a, 0x212b), (0x3045, 0x309a), (0xfb1d, 0xfb4e),
        (0x11099, 0x110ba), (0x11127, 0x11134), (0x114b9, 0x114be), (0x11930, 0x11943), (0x1d157, 0x1d172), (0x2f800, 0x2f80f))
CHUNK = 0x4000


def chunks(one):
    for begin in range(0, 0x110000, CHUNK):
        text = "".join(one(chr(c)) for c in range(begin, begin + CHUNK) if not 0xd800 <= c < 0xe000)
        if text:
            yield text


def random_sequences():
    """Texts of 1000 lines; the generator is one that the test has too."""
    pool = [c for first, last in POOL for c in range(first, last + 1)]
    state = 1
    for _ in range(20):
        lines = []
        for _ in range(1000):
            line = ""
            for _ in range(12):
                state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
                line += chr(pool[(state >> 33) % len(pool)])
            lines.append(line)
        yield "\n".join(lines)


def folds():
    """Patterns of 15 characters each, of which case does not matter; all characters that have case are tried."""
    small = normalizers.Lowercase()
    cased = [chr(c) for c in range(0x110000) if not 0xd800 <= c < 0xe000 and (chr(c).casefold() != chr(c) or small.normalize_str(chr(c)) != chr(c))]
    text = " ".join(cased + sorted({c.casefold() for c in cased} | {c.casefold().upper() for c in cased} | {c.lower() for c in cased}
                                   | {small.normalize_str(c) for c in cased}))
    some = [c.casefold() if len(c.casefold()) == 1 else c for c in cased] + [small.normalize_str(c)[0] for c in cased if c.casefold() == c] + ["ss", "ffi", "ff", "st", "FL", "a\u02be", "i\u0307"]
    patterns = ["|".join(f"(?i:{c})" for c in some[i:i + 15]) for i in range(0, len(some), 15)]
    return [[pattern, fnv(cut(pattern, "isolated", text))] for pattern in patterns], text


def write_unicode():
    def split(pattern):
        return pre_tokenizers.Split(Regex(pattern), "isolated")
    forms = (normalizers.NFC(), normalizers.NFD(), normalizers.NFKC(), normalizers.NFKD())
    others = (normalizers.Lowercase(), normalizers.StripAccents(), normalizers.BertNormalizer())
    cuts = (split(GPT2), split(LLAMA), split(CL100K), split(O200K), pre_tokenizers.Whitespace(), pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.BertPreTokenizer(), pre_tokenizers.Punctuation(), pre_tokenizers.Digits(individual_digits=False))

    def words(pre_tokenizer, text):
        return "\x1f".join(word for word, _ in pre_tokenizer.pre_tokenize_str(text)).encode()

    def json_of(field, part):
        tokenizer = Tokenizer(models.BPE())
        setattr(tokenizer, field, part)
        return json.loads(tokenizer.to_str())[field]

    gpt = Tokenizer.from_file(str(OUT / "gpt2.json"))
    fold_patterns, fold_text = folds()
    made = {
        "normalizers": [[json_of("normalizer", n), [fnv(n.normalize_str(text).encode()) for text in chunks(lambda c: c + "a")]]
                        for n in forms + others],
        "pool": POOL,
        "random": [[json_of("normalizer", n), [fnv(n.normalize_str(text).encode()) for text in random_sequences()]] for n in forms],
        "cuts": [[json_of("pre_tokenizer", p), [fnv(words(p, text)) for text in chunks(lambda c: f"{c}a{c}1")]] for p in cuts],
        "ids": [hash_of_ids(gpt.encode(text).ids) for text in chunks(lambda c: c + "a")],
        "folds": fold_patterns, "fold_text": fold_text,
    }
    (OUT / "unicode.json").write_text(json.dumps(made, ensure_ascii=True, separators=(",", ":")) + "\n", encoding="utf-8")


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    texts = fuzz(300)
    runs = assigned()
    made = {"texts": texts, "runs": runs, "tokenizers": {}}
    for make in MAKERS:
        tokenizer = make()
        (OUT / f"{make.__name__}.json").write_text(
            json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")

        def ids(text):
            return tokenizer.encode(text, add_special_tokens=False).ids

        encoded = [ids(text) for text in texts]
        document = "\n".join(texts) + "\n"
        made["tokenizers"][make.__name__] = {
            "vocab_size": max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1,
            "ids": [hash_of_ids(e) for e in encoded],
            "decoded": [fnv(tokenizer.decode(e).encode()) for e in encoded],
            "some": {str(i): encoded[i] for i in (3, 4, 5, 60, 200, 201, 202)},
            "document": hash_of_ids(ids(document * 8)),
            "play": hash_of_ids(ids(PLAY)),
            "sweep": [hash_of_ids(ids(text)) for text in sweeps(runs)] if make in (gpt2, llama3, bert_uncased, stripped) else [],
        }
    (OUT / "cases.json").write_text(json.dumps(made, ensure_ascii=True, separators=(",", ":")) + "\n", encoding="utf-8")


if sys.argv[1:2] == ["compare"]:
    compare(sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 1)
elif sys.argv[1:2] == ["patterns"]:
    write_patterns()
elif sys.argv[1:2] == ["unicode"]:
    write_unicode()
else:
    main()
    write_patterns()
    write_unicode()
