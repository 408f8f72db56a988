#!/usr/bin/env python3
"""Writes tests/golden/chat_templates/cases.json: what transformers' apply_chat_template makes of 200 random conversations
with every template of that folder, and which tokens it takes for the model's own.

Run from the top level, with transformers installed:
    python3 tools/reference/chat_templates.py
The file holds the conversations, each with its functions and variables, and for each template and conversation a line:
"bytes:CRC-32" of the text without and with the beginning of an answer, or "error" where the template refuses the
conversation; for templates with {% generation %} also the CRC-32 of the tokens and of return_assistant_tokens_mask, with
three tokenizers. Dates are replaced by a fixed one.
"""
import datetime
import json
import pathlib
import random
import tempfile
import zlib

import transformers
from transformers.utils import chat_template_utils

FOLDER = pathlib.Path("tests/golden/chat_templates")
TOKENIZERS = ("gpt2", "llama3", "bert_uncased")
DATE = datetime.datetime(2025, 3, 9, 12, 30)
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}

WORDS = ("the river, naïve Привет 東京 “quoted” 🎉 x<y & a>b \"q\" it's 3.14 {{ braces }} {% tag %} <think> </think> [INST] "
         "<|im_end|> </s> tab\there  double  line\nend 'single' back\\slash e\u0301 null None").split(" ")


def text(rng, most=12):
    words = [rng.choice(WORDS) for _ in range(rng.randint(1, most))]
    ends = rng.choice(["", "", " ", "\n", "\n\n"])
    return rng.choice(["", "", " ", "\n"]) + " ".join(words) + ends


def value(rng, depth=0):
    kinds = ["text", "int", "float", "flag", "none"] + ([] if depth > 1 else ["list", "object"])
    kind = rng.choice(kinds)
    if kind == "list":
        return [value(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    if kind == "object":
        return {rng.choice("zebra apple ключ x".split()): value(rng, depth + 1) for _ in range(rng.randint(0, 3))}
    return {"text": text(rng, 3), "int": rng.randint(-10**12, 10**12), "float": rng.choice([0.1, 1e-7, 2.5e20, -3.0]),
            "flag": rng.random() < 0.5, "none": None}[kind]


def function(rng):
    name = rng.choice(["weather", "search", "add"])
    properties = {"city": {"type": "string", "description": text(rng, 3)},
                  "unit": {"type": "string", "enum": ["c", "f"]},
                  "days": {"type": "array", "items": {"type": "integer"}}}
    kept = dict(list(properties.items())[:rng.randint(1, 3)])
    return {"type": "function", "function": {"name": name, "description": text(rng, 5), "parameters": {
        "type": "object", "properties": kept, "required": list(kept)[:1]}}}


def conversation(rng):
    messages = []
    if rng.random() < 0.4:
        messages.append({"role": "system", "content": text(rng)})
    calls = rng.random() < 0.25
    for _ in range(rng.randint(1, 4)):
        messages.append({"role": "user", "content": text(rng)})
        if calls and rng.random() < 0.6:
            call = {"id": "".join(rng.choice("abc123") for _ in range(9)), "type": "function", "function": {
                "name": "weather", "arguments": {"city": text(rng, 2), "n": value(rng)}}}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "content": text(rng, 4)})
        answer = {"role": "assistant", "content": text(rng)}
        if rng.random() < 0.2:
            answer[rng.choice(["reasoning_content", "thinking", "reasoning"])] = text(rng, 4)
        messages.append(answer)
    if rng.random() < 0.08:
        messages.pop(0)
    if rng.random() < 0.05:
        messages.append({"role": "user", "content": text(rng)})
    one = {"messages": messages}
    if calls or rng.random() < 0.1:
        one["tools"] = [function(rng) for _ in range(rng.randint(1, 2))]
    if rng.random() < 0.2:
        one["chat_template_kwargs"] = rng.choice([{"enable_thinking": False}, {"reasoning_effort": "high"},
                                                  {"date_string": "1 May 2020"}, {"eos_token": "<end>"}])
    return one


def digest(data):
    return f"{zlib.crc32(data):08x}"


class Clock(datetime.datetime):
    @classmethod
    def now(cls, zone=None):
        return DATE


def tokenizer_of(name):
    """A tokenizer of the tests; what is special in it stays so, and templates get their special tokens as variables."""
    kept = json.loads(pathlib.Path(f"tests/golden/hf_tokenizers/{name}.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "tokenizer.json"
        path.write_text(json.dumps(kept), encoding="utf-8")
        return transformers.PreTrainedTokenizerFast(tokenizer_file=str(path))


def line_of(template, one, tokenizers):
    extra = {**SPECIAL, "tools": one.get("tools"), **one.get("chat_template_kwargs", {})}
    parts = []
    for prompt in (False, True):
        try:
            made = tokenizers[0].apply_chat_template(one["messages"], chat_template=template, tokenize=False,
                                                     add_generation_prompt=prompt, **extra)
            parts.append(f"{len(made.encode())}:{digest(made.encode())}")
        except Exception:  # jinja2's errors, and Python's within a template
            parts.append("error")
    if parts[0] == "error" or "generation %}" not in template.replace("endgeneration", ""):
        return " ".join(parts)
    for tokenizer in tokenizers:
        out = tokenizer.apply_chat_template(one["messages"], chat_template=template, tokenize=True, return_dict=True,
                                            return_assistant_tokens_mask=True, **extra)
        ids = b"".join(int(i).to_bytes(4, "little") for i in out["input_ids"])
        parts.append(digest(ids) + digest(bytes(out["assistant_masks"])) + f":{sum(out['assistant_masks'])}")
    return " ".join(parts)


def main():
    chat_template_utils.datetime = Clock
    rng = random.Random(49)
    conversations = [conversation(rng) for _ in range(200)]
    tokenizers = [tokenizer_of(name) for name in TOKENIZERS]
    cases = {}
    for path in sorted(FOLDER.glob("*.jinja")):
        template = path.read_text(encoding="utf-8")
        cases[path.stem] = [line_of(template, one, tokenizers) for one in conversations]
        refused = sum(line.startswith("error") for line in cases[path.stem])
        print(f"{path.stem}: {refused} of {len(conversations)} refused")
    out = {"transformers": transformers.__version__, "date": DATE.strftime("%Y-%m-%d"), "special_tokens": SPECIAL,
           "tokenizers": TOKENIZERS, "conversations": conversations, "cases": cases}
    lines = json.dumps(out, ensure_ascii=False, separators=(",", ":"))
    (FOLDER / "cases.json").write_text(lines + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
