"""The fields of the configuration classes in Hugging Face's transformers whose models `trifold convert` reads.

tests/golden/hugging_face_fields.json holds them as they are in one version, with their defaults and other names. The
unit test models_hugging_face_fields_test.cpp compares Trifold's tables with that file, so that a field that
transformers renames, adds or gives another default is found by `check` with a newer version:

  pip install transformers
  hugging_face_fields.py write    writes the file
  hugging_face_fields.py check    says in what the installed version differs from it
"""

import dataclasses
import importlib
import json
import pathlib
import sys

from hugging_face_models import CLASSES

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "hugging_face_fields.json"



def defaults(kind):
    found = {}
    for field in dataclasses.fields(kind):
        if field.default is not dataclasses.MISSING:
            found[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            found[field.name] = field.default_factory()
        else:
            found[field.name] = "required"
    return found


def installed():
    import transformers
    from transformers import modeling_rope_utils as rope

    common = defaults(importlib.import_module("transformers.configuration_utils").PreTrainedConfig)
    families = {}
    for name, kind in CLASSES.items():
        kind = getattr(transformers, kind)
        own = {field: value for field, value in defaults(kind).items() if field not in common}
        theta = getattr(kind, "default_theta", None) if "rope_parameters" in own else None
        families[name] = {"fields": own, "other_names": kind.attribute_map, "rope_theta": theta}
        if isinstance(theta, dict):  # layers with a window have another base
            families[name] |= {"rope_theta": theta["global"], "rope_local_base_freq": theta["local"]}
    return {"transformers": transformers.__version__, "common": common, "families": families,
            "rope_parameters": sorted(rope.RopeParameters.__annotations__),
            "rope_types": sorted(rope.ROPE_INIT_FUNCTIONS)}


def differences(old, new, where):
    """Lines that say in what two trees differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            if key not in new:
                yield f"{where}.{key} is gone; it was {json.dumps(old[key])}"
            elif key not in old:
                yield f"{where}.{key} is new: {json.dumps(new[key])}"
            else:
                yield from differences(old[key], new[key], f"{where}.{key}")
    elif old != new:
        yield f"{where} is {json.dumps(new)}; it was {json.dumps(old)}"


def main():
    if sys.argv[1:] not in (["write"], ["check"]):
        sys.exit(__doc__)
    found = json.loads(json.dumps(installed()))
    if sys.argv[1] == "write":
        GOLDEN.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
        return 0
    golden = json.loads(GOLDEN.read_text())
    versions = f"transformers {found.pop('transformers')}", f"of {golden.pop('transformers')}"
    lines = list(differences(golden, found, "fields"))
    print(f"{versions[0]}: {len(lines)} differences from {GOLDEN.name} {versions[1]}", *lines, sep="\n  ")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
