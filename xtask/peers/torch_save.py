"""`torch.save` of every tensor into a file of its own, as hooks that dump a model do: `python3 torch_save.py DIR`.

Says torch's version, then answers each line (bytes of a tensor) with the GB/s of 64 MiB of such tensors. Nothing stays and nothing is synced.
"""

import pathlib
import shutil
import sys
import time

import torch

TOTAL = 1 << 26


def main() -> None:
    folder = pathlib.Path(sys.argv[1]) / "torch-save"
    print(torch.__version__, flush=True)
    for line in sys.stdin:
        width = int(line) // 4
        rows = torch.arange(TOTAL // 4, dtype=torch.float32).reshape(-1, width)
        # Tensors of their own: a view would be saved with all that it is a view of.
        tensors = [row.clone() for row in rows]
        folder.mkdir()
        start = time.perf_counter()
        for i, tensor in enumerate(tensors):
            torch.save(tensor, folder / f"{i}.pt")
        seconds = time.perf_counter() - start
        shutil.rmtree(folder)
        print(TOTAL / seconds / 1e9, flush=True)


if __name__ == "__main__":
    main()
