"""Audits whose patches run as kernels, on the machine with the GPU: `audit_suite.py audit|layer|layer-golden OUT.json`, beside `karat`, `pack`,
`model` and `real_shape`. Runs the program, reads the bundles that it leaves, and writes one file of evidence after every run:
whatever becomes of the rest, what has ended is known.

audit: the default audit with the default patches; 24 short runs of all five kernels, on the mini golden model and on 20 models with
random weights, each with sequences of one to 129 tokens, some decoded token by token.
layer: one layer of DeepSeek-V4-Flash's shapes with random weights, golden on the processor.
layer-golden: the same with golden on the GPU too.

KARAT_SUITE_DRY=1 runs a few of them by contracts on the processor alone: the script's own test.
"""

import csv
import json
import math
import os
import shutil
import sys
import tempfile
import threading
import time

KERNELS = "exact-split-mhc,bf16-gemm,fp8-indexer,mma-sparse-mla,{moe}"
DRY = os.environ.get("KARAT_SUITE_DRY") == "1"
# Seconds at which a run is ended.
LAST_END = 500
START = time.monotonic()


def left():
    return LAST_END - (time.monotonic() - START)


def run(args, log):
    """Exit code, seconds and the most memory of a process, in MiB; -1 where it was ended for its time. What it writes goes into `log`,
    each line behind the second at which it came."""
    begun = time.monotonic()
    taking, giving = os.pipe()
    pid = os.posix_spawn(args[0], args, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, giving, 1), (os.POSIX_SPAWN_DUP2, giving, 2)])
    os.close(giving)

    def keep():
        with os.fdopen(taking, errors="replace") as lines, open(log, "w") as out:
            for line in lines:
                out.write(f"{time.monotonic() - begun:.0f} s: {line}")
                out.flush()

    keeper = threading.Thread(target=keep)
    keeper.start()
    ended = False
    while True:
        found, status, usage = os.wait4(pid, os.WNOHANG)
        if found:
            break
        if left() < 0 and not ended:
            os.kill(pid, 9)
            ended = True
        time.sleep(0.02)
    keeper.join()
    code = -1 if ended else os.waitstatus_to_exitcode(status)
    return code, round(time.monotonic() - begun, 2), usage.ru_maxrss // 1024


def tail(log, most=1500):
    """The last whole lines of a log."""
    with open(log, errors="replace") as file:
        text = file.read()
    return text if len(text) <= most else text[-most:].split("\n", 1)[-1]


def number(text):
    return float(text) if text else None


def table(path):
    if not os.path.exists(path):
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def of_stock(rows):
    """What stock errs, by tap (a part in brackets): the largest total, inherited and injected error, and the row that is nearest to its
    tolerance, or farthest over it. Numbers that are none are counted."""
    taps = {}
    for row in rows:
        if row["patch_set"] != "stock" or row["part"].startswith("kernel"):
            continue
        at = taps.setdefault(row["tap"] + (f" ({row['part']})" if row["part"] else ""), {"rows": 0, "values": 0})
        at["rows"] += 1
        at["values"] += int(row["n"] or 0)
        for name in ("total", "inherited", "injected"):
            found = number(row[name])
            if found is None:
                continue
            if not math.isfinite(found):
                at["not_finite"] = at.get("not_finite", 0) + 1
            elif found >= at.get(name, 0.0):
                at[name] = found
        value, tolerance = number(row["value"]), number(row["tolerance"])
        judged = value is not None and tolerance is not None and math.isfinite(value) and tolerance > 0
        if judged and value / tolerance >= at.get("of_tolerance", 0.0):
            at.update(of_tolerance=value / tolerance, worst=value, tolerance=tolerance)
    return taps


def bundle(folder):
    """What a bundle says of kernels: judged rows, the worst of each tap, every row over its tolerance."""
    with open(os.path.join(folder, "run.json")) as file:
        of_run = json.load(file)
    verdict = of_run.get("verdict", {})
    path = os.path.join(folder, "verdict.json")
    if os.path.exists(path):
        with open(path) as file:
            verdict = json.load(file)
    taps, failing, judged, values = {}, [], 0, 0
    for row in table(os.path.join(folder, "taps.csv")):
        if row["part"] == "kernel.golden":
            at = taps.setdefault(row["tap"], {})
            at["from_golden"] = max(at.get("from_golden", 0.0), number(row["rel_l2"]) or 0.0)
        value, tolerance = number(row["value"]), number(row["tolerance"])
        if row["verdict"] == "fail":
            failing.append({k: row[k] for k in
                            ("sequence", "phase", "patch_set", "layer", "tap", "part", "rows", "value", "tolerance", "effective_rows")})
        if row["part"] != "kernel" or value is None or tolerance is None:
            continue
        judged += 1
        values += int(row["n"])
        at = taps.setdefault(row["tap"], {})
        at["rows"] = at.get("rows", 0) + 1
        if row["gate"] == "unexplained_flips":
            at["differing"] = at.get("differing", 0) + int(value)
        elif tolerance > 0 and value / tolerance >= at.get("of_tolerance", 0.0):
            at.update(of_tolerance=value / tolerance, worst=value, tolerance=tolerance)
    return {
        "verdict": verdict.get("verdict"), "reasons": verdict.get("reasons", []), "judged_rows": judged, "judged_values": values,
        "failing": failing[:40], "failing_rows": len(failing), "taps": taps, "stock": of_stock(table(os.path.join(folder, "taps.csv"))),
        "patches": [{k: row[k] for k in ("patch", "state", "verdict", "measured_error")}
                    for row in table(os.path.join(folder, "patches.csv"))],
        "notes": [n for n in of_run.get("notes", []) if "kernel" in n or "probe" in n],
        "wall": of_run.get("wall_s"),
    }


class Suite:
    def __init__(self, out):
        self.out, self.runs = out, []
        self.scratch = tempfile.mkdtemp(prefix="karat-suite-")
        self.place = {}

    def audit(self, name, args, random_weights, needs=90):
        if left() < needs:
            self.runs.append({"name": name, "exit": None, "skipped": "no time was left"})
            return self.write()
        folder = os.path.join(self.scratch, "bundle")
        shutil.rmtree(folder, ignore_errors=True)
        log = os.path.join(self.scratch, "log")
        command = ["./karat", "audit", "--no-cache", "--out", folder, *args]
        if not DRY:
            command += ["--candidate-backend", "cuda", "--pack", "pack"]
        code, seconds, memory = run(command, log)
        shown = " ".join(a.replace(self.scratch, "TMP") for a in command)
        row = {"name": name, "command": shown, "exit": code, "seconds": seconds, "memory_mib": memory, "random_weights": random_weights}
        if os.path.exists(os.path.join(folder, "run.json")):
            row.update(bundle(folder))
        else:
            # Where it was: its last lines, each with the second at which it came.
            row["said"] = tail(log)
            print(row["said"], end="")
        with open(log, errors="replace") as file:
            print("".join(line for line in file if "(golden" in line or "threads" in line), end="")
        self.runs.append(row)
        worst = max((t.get("of_tolerance", 0.0) for t in row.get("taps", {}).values()), default=0.0)
        print(f"{name}: exit {code}, {row.get('verdict')}, {seconds} s, {memory} MiB, {row.get('judged_rows')} rows, "
              f"worst {worst:.3f} of its tolerance, {row.get('failing_rows')} failing {row.get('reasons', row.get('said'))}", flush=True)
        parts = (row.get("wall") or {}).get("parts", {})
        print("  seconds: " + ", ".join(f"{k} {v:.1f}" for k, v in parts.items()), flush=True)
        return self.write()

    def write(self):
        """The file as far as it goes."""
        with open("suite.json") as file:
            facts = json.load(file)
        what = {"format": 1, "part": sys.argv[1], "date": time.strftime("%Y-%m-%d", time.gmtime()), "device": device(), **facts,
                "cores": os.cpu_count(), "seconds": round(time.monotonic() - START, 1), "runs": self.runs}
        with open(self.out + ".part", "w") as file:
            json.dump(what, file, indent=1)
            file.write("\n")
        os.replace(self.out + ".part", self.out)


def device():
    """Name and driver as nvidia-smi has them."""
    if not hasattr(device, "known"):
        said = os.popen("nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2> /dev/null").read().strip()
        parts = [p.strip() for p in said.splitlines()[0].split(",")] if said else ["none", "", ""]
        device.known = {"name": parts[0], "driver": parts[1], "memory": parts[2]}
    return device.known


def tokens(path, seed, lengths, vocab, decoded):
    """Sequences of these lengths; of every second one the last `decoded` ids are decoded one by one."""
    state = seed * 2654435761 + 1
    sequences = []
    for i, n in enumerate(lengths):
        ids = []
        for _ in range(n):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            ids.append((state >> 33) % vocab)
        one = {"id": f"s{i}-{n}", "input_ids": ids}
        if i % 2 == 1 and n > 1:
            one["generated_from"] = n - min(decoded, n - 1)
        sequences.append(one)
    with open(path, "w") as file:
        json.dump({"sequences": sequences}, file)


def vocabulary(model):
    with open(os.path.join(model, "config.json")) as file:
        return json.load(file)["vocab_size"]


def short_runs(suite, seeds):
    ids = os.path.join(suite.scratch, "tokens.json")
    on_gpu = [] if DRY else ["--backend", "cuda"]
    # Trained weights. Of every second sequence the end is decoded: a patch that never decoded is unproven.
    of_golden = (([24, 31], 8, []), ([64, 200], 12, []), ([5, 47, 9, 90], 6, on_gpu), ([16, 130], 9, ["--histories", "chunked:16"]))
    for i, (lengths, decoded, extra) in enumerate(of_golden):
        tokens(ids, 900 + i, lengths, vocabulary("model"), decoded)
        args = ["--model", "model", "--tokens", ids, "--patches", KERNELS.format(moe="mxfp4-moe"), *extra]
        suite.audit(f"mini golden model {i}", args, False)
    for seed in range(seeds):
        # All four pairs of a shape and a format.
        shape, experts = ("mini", "default")[seed % 2], ("mxfp4", "nvfp4")[seed // 2 % 2]
        model = os.path.join(suite.scratch, "model")
        shutil.rmtree(model, ignore_errors=True)
        code, _, _ = run(["./karat", "model", "new", "--geometry", shape, "--seed", str(seed), "--experts", experts, "--out", model],
                         os.path.join(suite.scratch, "log"))
        if code != 0:
            suite.runs.append({"name": f"seed {seed}", "exit": code, "skipped": "the model was not made"})
            continue
        lengths = [1, 2 + seed % 5, 8 + 3 * (seed % 4), 17 + 16 * (seed % 8), 129][: 3 + seed % 3]
        tokens(ids, seed + 100, lengths, vocabulary(model), 1 + seed % 6)
        patches = KERNELS.format(moe=f"{experts}-moe")
        if seed % 5 == 4:
            patches = patches.replace("bf16-gemm", "bf16-gemm:out=f32")
        suite.audit(f"seed {seed}, {shape}, {experts}", ["--model", model, "--tokens", ids, "--patches", patches], True)


def audit(suite):
    suite.audit("default audit", [], False)
    suite.audit("default audit, decoded", ["own-answer", "--histories", "decoded"], False)
    short_runs(suite, 2 if DRY else 20)


def layer(suite, there=()):
    # The long one first: what time is left is for the other.
    shape, lengths = ("narrow", (4096, 256)) if DRY else ("flash", (8192, 1024))
    model, ids = os.path.join(suite.scratch, "model"), os.path.join(suite.scratch, "tokens.json")
    code, seconds, _ = run(["./real_shape", model, shape, "1", "0"], os.path.join(suite.scratch, "log"))
    print(f"checkpoint: exit {code}, {seconds} s", flush=True)
    for n in lengths:
        tokens(ids, 7, [n // 64, n - n // 64], vocabulary(model), 8)
        # Every tap of every patch set is held in memory: the long run has one set beside stock.
        patches = KERNELS.format(moe="mxfp4-moe") if n < 4096 else "mxfp4-moe"
        where = ", golden on the GPU" if there else ""
        suite.audit(f"{n} tokens, {patches}{where}", ["--model", model, "--tokens", ids, "--layers", "1", "--patches", patches, *there], True, 250)


def layer_golden(suite):
    layer(suite, () if DRY else ("--backend", "cuda"))


if __name__ == "__main__":
    part, out = sys.argv[1], os.path.abspath(sys.argv[2])
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    suite = Suite(out)
    try:
        {"audit": audit, "layer": layer, "layer-golden": layer_golden}[part](suite)
    finally:
        suite.write()
        shutil.rmtree(suite.scratch, ignore_errors=True)
    bad = [r["name"] for r in suite.runs if r.get("exit") != 0]
    print(f"{part}: {len(suite.runs)} runs, not passed: {bad or 'none'}, {time.monotonic() - START:.0f} s")
    sys.exit(1 if bad else 0)
