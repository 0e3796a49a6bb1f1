#!/usr/bin/env python3
"""The module names of karat's built-in maps against the source of the wheels that they are for, without installing them.

    pip download --no-deps sglang==0.5.23 vllm==0.33.0 -d WHEELS
    python3 adapters/python/check_maps.py WHEELS/sglang-*.whl WHEELS/vllm-*.whl

Reads the classes of a wheel's DeepSeek-V4 model as syntax (nothing is imported or run) and follows each rule's module name
from the model's class through the attributes that its constructors assign. Prints a table in Markdown: rules whose name is
there, with the line that assigns it, and those whose name is not. Ends with 1 when a name is not there.
"""

import ast
import re
import sys
import tomllib
import zipfile
from pathlib import Path

MAPS = Path(__file__).resolve().parent.parent.parent / "trace/src/import/map/maps"
# Sources that hold the modules, the class that a server loads, and texts that the dumper's own source must have.
WHEELS = {
    "sglang": (
        ("sglang/srt/models/deepseek_v4", "sglang/srt/models/deepseek_v2.py", "sglang/srt/layers/", "sglang/srt/utils/common.py"),
        ("sglang/srt/models/deepseek_v4.py", "DeepseekV4ForCausalLM"),
        {
            "sglang/srt/debug_utils/tensor_dump_forward_hook.py": ("TP{tp_rank}_PP{pp_rank}_Rank{rank}_pid{", "Pass{"),
            "sglang/srt/debug_utils/dumper.py": ("___", "dump_index", "recompute_status"),
        },
    ),
    "vllm": (
        ("vllm/models/deepseek_v4/nvidia/", "vllm/models/deepseek_v4/attention.py", "vllm/models/deepseek_v4/compressor.py"),
        ("vllm/models/deepseek_v4/nvidia/model.py", "DeepseekV4ForCausalLM"),
        {},
    ),
}
# What follows the module's name in a dump.
TAGS = re.compile(r"/(pass|pp|tp|rank|step|layer_id)=.*$")


class Source:
    """Classes and functions of a wheel's files, by name."""

    def __init__(self, wheel, prefixes):
        self.classes, self.functions, self.names = {}, {}, {}
        for name in wheel.namelist():
            if not name.endswith(".py") or not any(name.startswith(p) for p in prefixes):
                continue
            for node in ast.walk(ast.parse(wheel.read(name))):
                if isinstance(node, ast.ClassDef):
                    self.classes.setdefault(node.name, []).append((name, node))
                elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    # Another name of a class, at the top or in a class: `model_cls = Model`.
                    if isinstance(node.value, (ast.Name, ast.Attribute, ast.IfExp)):
                        self.names.setdefault(node.targets[0].id, []).append(node.value)
                elif isinstance(node, ast.FunctionDef):
                    self.functions.setdefault(node.name, []).append(node)

    def family(self, name, seen=()):
        """A class and its bases."""
        if name in seen:
            return
        for file, node in self.classes.get(name, []):
            yield file, node
            for base in node.bases:
                yield from self.family(getattr(base, "attr", getattr(base, "id", "")), (*seen, name))

    def made_by(self, value, owners, depth=0):
        """Names of classes that an expression can make: those in it, and those behind other names and functions in it."""
        found = set()
        for node in ast.walk(value):
            name = getattr(node, "attr", None) or getattr(node, "id", None)
            if name in self.classes:
                found.add(name)
            elif name in self.names and depth < 2:
                for other in self.names[name]:
                    found |= self.made_by(other, owners, depth + 1)
            elif name in self.functions and depth < 2 and name.startswith(("_build", "_select", "build", "make")):
                for function in self.functions[name]:
                    found |= self.made_by(function, owners, depth + 1)
        return found

    def attribute(self, owners, attr):
        """(where it is assigned, classes it may be) of an attribute of one of these classes."""
        for owner in owners:
            for file, node in self.family(owner):
                for stmt in ast.walk(node):
                    targets = stmt.targets if isinstance(stmt, ast.Assign) else [getattr(stmt, "target", None)]
                    names = [t for target in targets for t in (target.elts if isinstance(target, ast.Tuple) else [target])]
                    hit = any(isinstance(t, ast.Attribute) and t.attr == attr and getattr(t.value, "id", "") == "self" for t in names)
                    value = getattr(stmt, "value", None)
                    if hit and value is not None and not isinstance(value, ast.Constant):
                        yield f"{file}:{stmt.lineno}", self.made_by(value, owners)

    def follow(self, root, path):
        """Where the module of this name is assigned; None when a part of the name is not."""
        owners, place = {root}, None
        for part in path:
            if part == "{layer}":
                continue
            found = list(self.attribute(owners, part))
            if not found:
                return None
            place = found[0][0]
            owners = set().union(*(made for _, made in found))
        return place


def check(path):
    path = Path(path)
    name, version = path.name.split("-")[:2]
    prefixes, (file, root), texts = WHEELS[name]
    wheel = zipfile.ZipFile(path)
    source = Source(wheel, prefixes)
    lacking = []
    if not any(where == file for where, _ in source.classes.get(root, [])):
        lacking.append(f"{file}: class {root}")
    for where, words in texts.items():
        body = wheel.read(where).decode() if where in wheel.namelist() else ""
        lacking += [f"{where}: `{word}`" for word in words if word not in body]
    rules = tomllib.loads((MAPS / f"{name}.toml").read_text())["tensor"]
    modules = {}
    for rule in rules:
        module = re.sub(r"\.\d+$", "", TAGS.sub("", rule["from"]))
        modules.setdefault(module, rule["to"])
    there = {module: source.follow(root, module.split(".")) for module in modules}
    missing = [m for m, place in there.items() if place is None]
    print(f"| {name} {version} | {len(modules) - len(missing)} of {len(modules)} | {', '.join(f'`{m}`' for m in missing + lacking) or '-'} |")
    for module, place in there.items():
        print(f"  {module} -> {modules[module]}: {place}", file=sys.stderr)
    return not missing and not lacking


if __name__ == "__main__":
    print("| wheel | names of the map that its source has | not there |\n|---|---|---|")
    sys.exit(0 if all([check(path) for path in sys.argv[1:]]) else 1)
