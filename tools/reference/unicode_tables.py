#!/usr/bin/env python3
"""Writes src/tokenize/unicode/unicode_tables.inc: the character properties of Hugging Face's `tokenizers`, determined from the
package itself.

Run from the top level, with `tokenizers` installed (pip install tokenizers==0.23.3); Perl's Unicode::UCD lists the names of properties:
    python3 tools/reference/unicode_tables.py            takes some minutes

The package has the tables of several Unicode versions, which docs/unicode.md names: normal forms, marks (unicode-normalization-alignments),
punctuation and controls of BERT (unicode_categories), small letters, numbers and words (Rust and its regex crate), classes of patterns (Oniguruma), clusters (unicode-segmentation).
tools/reference/hugging_face_tokenizers.py writes the hashes that the tests compare with, over all code points.

Numbers are packed as in source maps: digits of 5 bits, the lowest first, 32 added to all but the last, each as one of
kDigits. A set is the list of the code points where its ranges begin and end, as differences.
"""
import array
import pathlib
import re
import subprocess
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, __version__, models, normalizers, pre_tokenizers

OUT = pathlib.Path("src/tokenize/unicode/unicode_tables.inc")
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
EVERY = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
END = 0x110000

# Properties with two values that Oniguruma knows; its general categories and scripts are added.
BINARY = """ASCII_Hex_Digit AHex Alphabetic Alpha Bidi_Control Bidi_C Case_Ignorable CI Cased Changes_When_Casefolded CWCF Changes_When_Casemapped CWCM
Changes_When_Lowercased CWL Changes_When_Titlecased CWT Changes_When_Uppercased CWU Dash Default_Ignorable_Code_Point DI Deprecated Dep Diacritic Dia
Emoji Emoji_Component EComp Emoji_Modifier EMod Emoji_Modifier_Base EBase Emoji_Presentation EPres Extended_Pictographic ExtPict Extender Ext
Grapheme_Base Gr_Base Grapheme_Extend Gr_Ext Grapheme_Link Gr_Link Hex_Digit Hex Hyphen IDS_Binary_Operator IDSB IDS_Trinary_Operator IDST ID_Continue
IDC ID_Start IDS Ideographic Ideo Join_Control Join_C Logical_Order_Exception LOE Lowercase Lower Math Noncharacter_Code_Point NChar Pattern_Syntax
Pat_Syn Pattern_White_Space Pat_WS Prepended_Concatenation_Mark PCM Quotation_Mark QMark Radical Regional_Indicator RI Sentence_Terminal STerm
Soft_Dotted SD Terminal_Punctuation Term Unified_Ideograph UIdeo Uppercase Upper Variation_Selector VS White_Space space WSpace XID_Continue XIDC
XID_Start XIDS Other_Alphabetic Other_Math Other_Lowercase Other_Uppercase Other_ID_Start Other_ID_Continue Other_Grapheme_Extend
Other_Default_Ignorable_Code_Point IDS_Unary_Operator IDSU ID_Compat_Math_Start ID_Compat_Math_Continue Assigned Alnum Blank Cntrl Digit Graph Print Punct XDigit Word ASCII Any LC Cased_Letter""".split()
# Scripts that are younger than the Unicode of most Perls.
SCRIPTS = """Kawi Nag_Mundari Nagm Garay Gara Gurung_Khema Gukh Kirat_Rai Krai Ol_Onal Onao Sunuwar Sunu Todhri Todr Tulu_Tigalari Tutg""".split()
BRACKETS = "alnum alpha ascii blank cntrl digit graph lower print punct space upper xdigit word".split()
NAMES = ('use Unicode::UCD qw(prop_values prop_value_aliases); for my $p ("gc", "sc") { for my $v (prop_values($p)) '
         '{ print join(" ", grep {defined} prop_value_aliases($p, $v)), "\\n"; } }')


def number(value):
    out = ""
    while value >= 32:
        out += DIGITS[32 + value % 32]
        value //= 32
    return out + DIGITS[value]


def packed(values):
    return "".join(map(number, values))


def boundaries(codes, among):
    """Where the set `codes`, of which only the code points `among` were looked at, begins and ends by turns."""
    codes, ends = set(codes), []
    for code in among:
        if (code in codes) != len(ends) % 2:
            ends.append(code)
    return ends + [END] * (len(ends) % 2)


def packed_set(ends):
    return packed(end - before for before, end in zip([0] + ends, ends))


def literal(text):
    return "\n".join(f'    "{text[i:i + 140]}"' for i in range(0, len(text), 140)) or '    ""'


def representatives():
    """Every code point but the inner ones of long runs that are alike in all versions: ideographs, syllables, planes without characters."""
    out, run, before = [], [], None
    for code in EVERY:
        name, category = unicodedata.name(chr(code), ""), unicodedata.category(chr(code))
        empty = category == "Cn" and (0x34000 <= code < 0xE0000 or code >= 0xE1000)
        kind = category if category == "Co" or empty else None
        for prefix in ("CJK UNIFIED", "HANGUL SYLLABLE", "TANGUT IDEOGRAPH", "TANGUT COMPONENT", "KHITAN", "NUSHU CHARACTER"):
            kind = prefix if name.startswith(prefix) else kind
        if kind is None or kind != before:
            out += run if len(run) <= 64 else run[:3] + run[-3:]
            run = []
        before = kind
        run.append(code)
    return out + (run if len(run) <= 64 else run[:3] + run[-3:])


def classes_of_patterns():
    """name -> boundaries: properties by their names without case, '_', '-' and ' '; \\w as itself; [:alpha:] as itself; [\\w] where it differs."""
    some = representatives()
    text = "".join(map(chr, some))
    names = subprocess.run(["perl", "-e", NAMES], check=True, capture_output=True, text=True).stdout.split()
    patterns = {re.sub("[_-]", "", name).lower(): rf"\p{{{name}}}" for name in names + SCRIPTS + BINARY}
    patterns |= {f"[:{name}:]": f"[[:{name}:]]" for name in BRACKETS}
    patterns |= {f"\\{c}": f"\\{c}" for c in "wsdh"} | {f"[\\{c}]": f"[\\{c}]" for c in "wsdh"}
    found = {}
    for name, pattern in patterns.items():
        try:
            rest = set("".join(word for word, _ in pre_tokenizers.Split(Regex(pattern), "removed").pre_tokenize_str(text)))
        except Exception:  # Oniguruma lacks some names
            continue
        found[name] = boundaries((c for c in some if chr(c) not in rest), some)
    return found


def changed_by(normalizer):
    return {c: new for c in EVERY if (new := normalizer.normalize_str(chr(c))) != chr(c)}


def bert(**options):
    return normalizers.BertNormalizer(**{**dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False), **options})


def removed_by(normalizer):
    return boundaries((c for c, new in changed_by(normalizer).items() if new == ""), EVERY)


def cut_by(pre_tokenizer, words):
    """Characters between two letters where that makes so many words."""
    return boundaries((c for c in EVERY if len(pre_tokenizer.pre_tokenize_str(f"a{chr(c)}a")) == words), EVERY)


def words():
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.add_tokens([AddedToken("ZZ", single_word=True)])
    inside = boundaries((c for c in EVERY if 1 not in tokenizer.encode(f"ZZ{chr(c)}", add_special_tokens=False).ids), EVERY)
    assert inside == cut_by(pre_tokenizers.Whitespace(), 1)
    return inside


def combining_classes(nfd):
    """Code points by class. Unicode's own class of old marks determines those of others: marks are put in the order of their classes."""
    def before(a, b):  # a + b is put in the other order
        return a != b and nfd(f"a{chr(a)}{chr(b)}") == f"a{chr(b)}{chr(a)}"
    known = {unicodedata.combining(chr(c)): c for c in reversed(range(0x300, 0x1B00)) if unicodedata.combining(chr(c)) and nfd(chr(c)) == chr(c)}
    order = sorted(known)
    highest, lowest = known[order[-1]], known[order[0]]
    classes = {}
    for code in EVERY:
        if 0xAC00 <= code < 0xD7A4 or nfd(chr(code)) != chr(code) or not (before(highest, code) or before(code, lowest)):
            continue
        below = [value for value in order if before(code, known[value])]      # classes lower than that of code
        above = [value for value in order if before(known[value], code)]
        same = [value for value in order if value not in below and value not in above]
        if len(same) != 1:  # a class that no old mark has
            assert unicodedata.combining(chr(code)) not in order, hex(code)
            same = [unicodedata.combining(chr(code))]
        classes.setdefault(same[0], []).append(code)
    return classes


def compositions(nfc, nfd):
    """first, second -> composed, without Hangul."""
    pairs = {}
    for code in EVERY:
        text = nfd(chr(code))
        if 0xAC00 <= code < 0xD7A4 or text == chr(code) or nfc(chr(code)) != chr(code):
            continue
        first = nfc(text[:-1])
        assert len(first) == 1 and nfc(first + text[-1]) == chr(code), hex(code)
        pairs[ord(first), ord(text[-1])] = code
    return pairs


def fold_classes():
    """Characters that are alike without case, by what they become (one character, or two or three); checked with Oniguruma."""
    groups = {}
    small = changed_by(normalizers.Lowercase())
    for code in EVERY:
        folded = chr(code).casefold()
        # Python may not know a newer letter.
        if folded == chr(code) and code in small and unicodedata.category(folded) == "Cn":
            other = small[code]
            folded = other if not pre_tokenizers.Split(Regex(f"(?i:{other})"), "removed").pre_tokenize_str(folded) else folded
        groups.setdefault(folded, []).append(code)
    classes = []
    for folded, codes in groups.items():
        if codes == [ord(folded)] if len(folded) == 1 else False:
            continue
        line = "".join(map(chr, codes))
        pieces = pre_tokenizers.Split(Regex(f"(?i:{re.escape(chr(codes[0]))})"), "removed").pre_tokenize_str(line)
        assert not pieces, (folded, line, pieces)
        classes.append(([] if len(folded) == 1 else list(map(ord, folded)), codes))
    return classes


def replaces(key):
    """A normalizer that writes X for `key`: SentencePiece's map of characters, a double array with one path."""
    units, at = [0] * (256 * (len(key) + 2)), 0
    for step, byte in enumerate(key):
        units[at] |= (at ^ 256 * (step + 1)) << 10
        at = 256 * (step + 1) + byte
        units[at] = byte
    units[at] |= (at ^ 256 * (len(key) + 1)) << 10 | 1 << 8
    units[256 * (len(key) + 1)] = 1 << 31
    trie = array.array("I", units).tobytes()
    return normalizers.Precompiled(len(trie).to_bytes(4, "little") + trie + b"X\0")


def clusters():
    """What belongs to one cluster: the map applies to clusters of up to five bytes as a whole, and to what they begin with."""
    letter, copyright = replaces(b"e"), replaces("\u00a9".encode())
    basic = [c for c in EVERY if 0 < c < 0x10000]
    after = {c: replaces(chr(c).encode()) for c in basic}
    joins = [c for c in EVERY if letter.normalize_str("e" + chr(c)) == "X"]
    prepends = [c for c in basic if after[c].normalize_str(chr(c) + "e") == "X"]
    controls = [c for c in basic if c >= 0x7F and after[c].normalize_str(chr(c) + "\u0301") != "X"]
    pictographs = [c for c in EVERY if copyright.normalize_str("\u00a9\u200d" + chr(c)) != "X" + chr(c) and c not in set(joins)]
    return {"kClusterJoins": boundaries(joins, EVERY), "kClusterControls": boundaries(controls, EVERY),
            "kClusterPrepends": boundaries(prepends, EVERY), "kPictographs": boundaries(pictographs, EVERY)}


def mapping(changes):
    """Packed: how far the code point is from the one before, how many characters it becomes, and these."""
    out, before = [], 0
    for code, new in sorted(changes.items()):
        out += [code - before, len(new), *map(ord, new)]
        before = code
    return packed(out)


def main():
    nfc, nfd, nfkd = (form().normalize_str for form in (normalizers.NFC, normalizers.NFD, normalizers.NFKD))
    canonical = {c: new for c, new in changed_by(normalizers.NFD()).items() if not 0xAC00 <= c < 0xD7A4}
    compatible = {c: new for c, new in changed_by(normalizers.NFKD()).items() if not 0xAC00 <= c < 0xD7A4 and canonical.get(c) != new}
    classes = combining_classes(nfd)
    packed_classes = []
    for value, codes in sorted(classes.items()):
        ends = boundaries(codes, EVERY)
        packed_classes += [value, len(ends), *(end - before for before, end in zip([0] + ends, ends))]
    pairs = [x for (first, second), code in sorted(compositions(nfc, nfd).items()) for x in (first, second, code)]
    folds = [x for folded, codes in fold_classes() for x in (len(folded), *folded, len(codes), *codes)]
    sets = {
        "kWhiteSpace": cut_by(pre_tokenizers.WhitespaceSplit(), 2),
        "kNumbers": cut_by(pre_tokenizers.Digits(), 3),
        "kWords": words(),
        "kPunctuationOfBert": cut_by(pre_tokenizers.BertPreTokenizer(), 3),
        "kOthersOfBert": removed_by(bert(clean_text=True)),
        "kNonspacingMarks": removed_by(bert(strip_accents=True)),
        "kMarks": removed_by(normalizers.StripAccents()),
        **clusters(),
    }
    lines = [f"// Written by tools/reference/unicode_tables.py of tokenizers {__version__}; see there.", "// clang-format off", ""]
    for name, ends in sets.items():
        lines.append(f"constexpr std::string_view {name} =\n{literal(packed_set(ends))};")
    for name, text in (("kSmallLetters", mapping(changed_by(normalizers.Lowercase()))), ("kCanonical", mapping(canonical)),
                       ("kCompatible", mapping(compatible)), ("kCombiningClasses", packed(packed_classes)), ("kCompositions", packed(pairs)),
                       ("kFolds", packed(folds))):
        lines.append(f"constexpr std::string_view {name} =\n{literal(text)};")
    by_set = {}
    for name, ends in classes_of_patterns().items():
        by_set.setdefault(packed_set(ends), []).append(name)
    lines.append("// Names, with spaces around each, and the set they share.")
    lines.append("constexpr NamedSet kClasses[] = {")
    for text, names in by_set.items():
        quoted = " ".join(names).replace("\\", "\\\\")
        lines.append(f'  {{" {quoted} ",\n{literal(text)}}},')
    OUT.write_text("\n".join(lines + ["};", ""]), encoding="ascii")


if __name__ == "__main__":
    main()
