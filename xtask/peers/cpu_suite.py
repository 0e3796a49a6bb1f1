"""What golden's goals cost on a machine with many cores and no Rust: `cpu_suite.py capture|dumps|depth|shape [OUT]`, beside `captured`,
`capture_speed`, `real_shape`, `torch_save.py` and `model` (`cargo xtask cpu-suite` makes that folder).

capture: golden with capture off, with sketches, with whole dumps, by turns, at 512 and 2,048 tokens, on 2 threads and on all.
dumps: a dump of ready tensors beside plain writes and torch.save.
depth: the most memory of 12 and of 48 layers, and their seconds, with the program's one arena, with two and with glibc's number.
shape: a CSA, an HCA and another CSA layer of DeepSeek-V4-Flash's shapes, op by op, at 2,048 and 8,192 tokens.

Each part ends within 90 s (shape writes 11 GB first: 150 s) and leaves OUT/PART.txt. Traces and layers lie in a temporary folder of OUT.
"""

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

CORES = len(os.sched_getaffinity(0))
HERE = os.path.dirname(os.path.abspath(__file__))


class Run:
    """Runs programs in a folder that is deleted at the end, and keeps what they say."""

    def __init__(self, out, part):
        self.log = open(os.path.join(out, part + ".txt"), "w")
        self.folder = tempfile.mkdtemp(dir=out)

    def say(self, text):
        print(text, flush=True)
        self.log.write(text + "\n")
        self.log.flush()

    def __call__(self, program, *args, quiet=False, **env):
        command = [os.path.join(HERE, program), *map(str, args)]
        done = subprocess.run(command, env=os.environ | env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if not quiet or done.returncode:
            self.say(done.stdout.rstrip())
        if done.returncode:
            self.say(f"{program} ended with {done.returncode}")
            sys.exit(1)
        return done.stdout


def capture(run):
    for threads in sorted({2, CORES}):
        run.say(f"{threads} threads")
        run("captured", os.path.join(HERE, "model"), run.folder, threads, 18)


def dumps(run):
    run("capture_speed", run.folder, os.path.join(HERE, "torch_save.py"))


def depth(run):
    folders = {layers: os.path.join(run.folder, str(layers)) for layers in (12, 48)}
    for layers, folder in folders.items():
        run("real_shape", folder, "narrow", layers, 0, quiet=True)
    arenas = {"one, the program's own": {}, "two": {"MALLOC_ARENA_MAX": "2"}, "glibc's number": {"MALLOC_ARENA_MAX": str(8 * CORES)}}
    found = {(name, layers): [] for name in arenas for layers in folders}
    for _ in range(5):
        for name, env in arenas.items():
            for layers, folder in folders.items():
                said = run("real_shape", folder, "narrow", layers, 1024, CORES, quiet=True, **env)
                seconds, peak = re.search(r"tokens: ([\d.]+) s; peak (\d+) kB", said).groups()
                found[name, layers].append((int(peak) / 1000, float(seconds)))
    run.say(f"{CORES} threads, 1,024 rows, five runs each by turns: most resident in MB, seconds; median (least to most)")
    for name in arenas:
        peaks = {}
        for layers in folders:
            columns = []
            for values in zip(*found[name, layers]):
                columns.append(f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})")
            peaks[layers] = statistics.median(peak for peak, _ in found[name, layers])
            run.say(f"  {name}, {layers} layers: {'; '.join(columns)}")
        pairs = [b[0] / a[0] for a, b in zip(found[name, 12], found[name, 48])]
        run.say(f"  {name}: ratio of medians {peaks[48] / peaks[12]:.3f}, of pairs at most {max(pairs):.3f}")


def shape(run):
    folder = os.path.join(run.folder, "flash")
    for tokens in (2048, 8192):
        run.say(f"{tokens} tokens")
        run("real_shape", folder, "flash:256", 3, tokens, CORES, "ops")
        run("real_shape", folder, "flash:256", 3, tokens, CORES)


def main():
    part, out = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "."
    run = Run(out, part)
    try:
        {"capture": capture, "dumps": dumps, "depth": depth, "shape": shape}[part](run)
    finally:
        shutil.rmtree(run.folder)


if __name__ == "__main__":
    main()
