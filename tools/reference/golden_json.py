"""JSON for golden files: compact, one entry per line, every number with the 17 digits that restore the same double."""

import json


def number(value):
    text = "%.17g" % value
    return text if float(text) == value else repr(value)


def text_of(value, indent=0):
    """`value` as JSON: dicts and lists of dicts spread over lines, lists of numbers on one line."""
    pad = " " * (indent + 1)
    if isinstance(value, dict):
        rows = [f"{pad}{json.dumps(key)}: {text_of(item, indent + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(rows) + "\n" + " " * indent + "}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(pad + text_of(item, indent + 1) for item in value) + "\n" + " " * indent + "]"
    if isinstance(value, list):
        return "[" + ",".join(text_of(item) for item in value) + "]"
    return number(value) if isinstance(value, float) else json.dumps(value)


def write(path, value):
    with open(path, "w", encoding="ascii") as file:
        file.write(text_of(value) + "\n")
