"""Trains the golden model: python train.py --data DIR --out DIR --plan 512d:200,2048:800,.. [--steps-from state].

A plan's stage is LENGTH[d]:STEPS; d attends densely to compressed entries. Stage number i reads DIR/s{i}.ids and .cls
(golden-data rows), at TOKENS tokens a step. The state is written when the plan or --seconds ends, and a run with the same
plan goes on from it."""

import argparse
import json
import os
import time

import torch

import checkpoint
import forward
import initial
import optimiser
from shape import Shape

TOKENS = 32768


class Data:
    """A stage's rows on the device."""

    def __init__(self, stem, length, device, wait=180):
        started = time.time()
        while not (os.path.exists(stem + ".ids") and os.path.exists(stem + ".cls")):
            if time.time() - started > wait:
                raise SystemExit(f"{stem}.ids did not come")
            time.sleep(0.2)
        # Signed 16-bit holds every id of a small vocabulary.
        self.ids = torch.frombuffer(bytearray(open(stem + ".ids", "rb").read()), dtype=torch.int16).view(-1, length)
        self.classes = torch.frombuffer(bytearray(open(stem + ".cls", "rb").read()), dtype=torch.uint8).view(-1, length)
        self.ids, self.classes = self.ids.to(device), self.classes.to(device)

    def batch(self, step, rows):
        """Rows of a step, round and round."""
        n = self.ids.shape[0]
        at = torch.arange(step * rows, (step + 1) * rows, device=self.ids.device) % n
        return self.ids[at].long(), self.classes[at]


def parse_plan(text):
    """[(length, sparse, steps)] of a --plan."""
    out = []
    for part in text.split(","):
        length, steps = part.split(":")
        out.append((int(length.rstrip("d")), not length.endswith("d"), int(steps)))
    return out


def rate(step, total, peak, warm=200, decay=0.35):
    """Learning rate: up over the first steps, down to 2 % over the last share."""
    up = min((step + 1) / warm, 1.0)
    down = min((total - step) / (decay * total), 1.0)
    return peak * up * max(down, 0.02)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--plan", required=True)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--vocab", type=int, default=768)
    p.add_argument("--seconds", type=float, default=1e9)
    p.add_argument("--tokens", type=int, default=TOKENS)
    p.add_argument("--eager", action="store_true")
    p.add_argument("--profile", action="store_true", help="print where a step of each stage spends its time")
    a = p.parse_args()
    started = time.time()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.recompile_limit = 64
    torch._dynamo.config.accumulated_recompile_limit = 512
    s = Shape(vocab=a.vocab)
    weights, tables = initial.weights(s, a.seed)
    weights = {k: w.to(device).requires_grad_(not k.endswith("gate.bias")) for k, w in weights.items()}
    onehot = {k: torch.zeros(s.vocab, s.experts).scatter(1, t, 1.0).to(device) for k, t in tables.items()}
    opt = optimiser.Optimiser(weights, device)
    trainer = forward.Trainer(s, weights, onehot, device, not a.eager, torch.bfloat16 if device == "cuda" else torch.float32)
    plan = parse_plan(a.plan)
    total = sum(n for _, _, n in plan)
    os.makedirs(a.out, exist_ok=True)
    state_path = f"{a.out}/state.pt"
    done = 0
    if os.path.exists(state_path):
        saved = torch.load(state_path, map_location=device)
        done = saved["done"]
        opt.state = saved["state"]
        with torch.no_grad():
            for k, w in weights.items():
                w.copy_(saved["weights"][k])
    print(f"{sum(w.numel() for w in weights.values()) / 1e6:.2f} M parameters, from step {done} of {total}", flush=True)
    log = open(f"{a.out}/log.jsonl", "a")
    seen, mark, tick = [], done, time.time()
    step = 0
    for number, (length, sparse, steps) in enumerate(plan):
        if step + steps <= done:
            step += steps
            continue
        data = Data(f"{a.data}/s{number}", length, device)
        for inner in range(done - step if done > step else 0, steps):
            at = step + inner
            if time.time() - started > a.seconds:
                break
            ids, classes = data.batch(inner, a.tokens // length)

            def one():
                loss, values, counts = trainer.run(ids, classes, sparse)
                loss.backward()
                norm = opt.step(torch.tensor(rate(at, total, a.lr), device=device))
                opt.balance(counts)
                return values, norm

            if a.profile and inner == 12:
                from torch.profiler import ProfilerActivity, profile

                with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
                    values, norm = one()
                    torch.cuda.synchronize()
                print(prof.key_averages().table(sort_by="self_cuda_time_total", row_limit=22, max_name_column_width=60), flush=True)
            else:
                values, norm = one()
            seen.append(torch.stack([v.float() for v in values.values()] + [norm]))
            done = at + 1
            if done % 50 == 0 or inner < 2 or done == total:
                mean = torch.stack(seen).mean(0).tolist()
                now = time.time()
                line = dict(zip([*values, "norm"], mean)) | {"step": done, "length": length, "rate": a.tokens * (done - mark) / (now - tick), "at": now - started}
                line = {k: float(f"{v:.4g}") for k, v in line.items()}
                log.write(json.dumps(line) + "\n")
                log.flush()
                print(line, flush=True)
                seen, mark, tick = [], done, now
                if not line["loss"] < 100:
                    raise SystemExit("the loss is no number")
        step += steps
        if time.time() - started > a.seconds:
            break
    torch.save({"done": done, "state": opt.state, "weights": {k: w.detach() for k, w in weights.items()}}, state_path)
    checkpoint.save(f"{a.out}/model.safetensors", weights, tables, {"format": "pt"})
    json.dump(s.to_config(), open(f"{a.out}/config.json", "w"), indent=2)
    print(f"stopped at step {done} of {total} after {time.time() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
