"""SGLang's own compare_tensor_pair out of its wheel, without installing a serving engine: the folder of the comparator is
unpacked, its packages' __init__ and the helper that prints a tensor are left out, everything that computes is theirs.

    python sglang_comparator.py WHEEL FOLDER      unpacks
"""

import os
import sys
import types
import zipfile

PACKAGES = ("sglang", "sglang.srt", "sglang.srt.debug_utils", "sglang.srt.debug_utils.comparator")
PREFIX = "sglang/srt/debug_utils/comparator/"


def unpack(wheel, folder):
    with zipfile.ZipFile(wheel) as z:
        for name in z.namelist():
            if name.startswith(PREFIX) and name.endswith(".py"):
                z.extract(name, folder)


def load(folder):
    for name in PACKAGES:
        module = types.ModuleType(name)
        module.__path__ = [os.path.join(folder, *name.split("."))]
        sys.modules[name] = module
    dumper = types.ModuleType("sglang.srt.debug_utils.dumper")
    dumper.get_truncated_value = lambda t: str(t.flatten()[:8])
    sys.modules[dumper.__name__] = dumper
    from sglang.srt.debug_utils.comparator.tensor_comparator.comparator import compare_tensor_pair

    return compare_tensor_pair


if __name__ == "__main__":
    unpack(*sys.argv[1:3])
else:
    compare_tensor_pair = load(os.environ["KARAT_PEERS_COMPARATOR"])
