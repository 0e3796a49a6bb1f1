"""Trains the golden model: python train.py --data DIR --out DIR --plan 512d:110s,2048:260s,..

A plan's stage is LENGTH[d]:STEPS or LENGTH[d]:SECONDSs; d attends densely to compressed entries. Stage number i reads
DIR/s{i}.ids and .cls (golden-data rows), at --tokens tokens a step. The state is written when the plan or --seconds (of
this run) ends, and a run with the same plan goes on from it. Time spent on compiling counts for no stage. A plan in
steps repeats one in seconds: the log says how many steps each stage took."""

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
    """[(length, sparse, amount, whether the amount is in seconds)] of a --plan."""
    out = []
    for part in text.split(","):
        length, amount = part.split(":")
        out.append((int(length.rstrip("d")), not length.endswith("d"), float(amount.rstrip("s")), amount.endswith("s")))
    return out


def rate(step, progress, peak, warm=200, decay=0.35):
    """Learning rate: up over the first steps, down to 2 % over the last share of the plan."""
    return peak * min((step + 1) / warm, 1.0) * max(min((1 - progress) / decay, 1.0), 0.02)


class Step:
    """One update of a stage. From the fourth call on, CUDA replays a captured graph: launching the kernels one by
    one takes three times as long as running them."""

    def __init__(self, trainer, opt, batch, length, sparse, device, graph):
        self.trainer, self.opt, self.sparse, self.device = trainer, opt, sparse, device
        self.ids = torch.zeros(batch, length, dtype=torch.long, device=device)
        self.classes = torch.zeros(batch, length, dtype=torch.uint8, device=device)
        self.lr = torch.zeros((), device=device)
        self.calls, self.graph, self.out, self.names = 0, None, None, None
        self.wanted = graph and device == "cuda"

    def body(self):
        """Forward, backward, update; the step's numbers as one tensor."""
        loss, values, counts = self.trainer.run(self.ids, self.classes, self.sparse)
        loss.backward()
        norm = self.opt.step(self.lr)
        self.opt.balance(counts)
        self.names = [*values, "norm"]
        return torch.stack([v.float() for v in values.values()] + [norm])

    def __call__(self, ids, classes, lr):
        self.ids.copy_(ids)
        self.classes.copy_(classes)
        self.lr.fill_(lr)
        self.calls += 1
        if not self.wanted:
            return self.body()
        if self.calls <= 3:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                out = self.body()
            torch.cuda.current_stream().wait_stream(side)
            torch.cuda.synchronize()
            return out.clone()
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.out = self.body()
        self.graph.replay()
        return self.out.clone()


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
    p.add_argument("--no-graph", action="store_true", help="launch kernels one by one")
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
    whole = sum(amount for _, _, amount, _ in plan)
    os.makedirs(a.out, exist_ok=True)
    state_path = f"{a.out}/state.pt"
    # Steps and, for stages in seconds, clock of every stage.
    made = [{"steps": 0, "amount": 0.0} for _ in plan]
    if os.path.exists(state_path):
        saved = torch.load(state_path, map_location=device)
        made = saved["made"]
        opt.state = saved["state"]
        with torch.no_grad():
            for k, w in weights.items():
                w.copy_(saved["weights"][k])
    print(f"{sum(w.numel() for w in weights.values()) / 1e6:.2f} M parameters, stages done: {made}", flush=True)
    log = open(f"{a.out}/log.jsonl", "a")
    late = lambda: time.time() - started > a.seconds
    for number, (length, sparse, amount, timed) in enumerate(plan):
        stage = made[number]
        if stage["amount"] >= amount or late():
            continue
        data = Data(f"{a.data}/s{number}", length, device)
        step = Step(trainer, opt, a.tokens // length, length, sparse, device, not a.no_graph)
        seen, tick = [], None
        while stage["amount"] < amount and not late():
            at = sum(m["steps"] for m in made)
            progress = sum(m["amount"] for m in made) / whole
            ids, classes = data.batch(stage["steps"], a.tokens // length)
            seen.append(step(ids, classes, rate(at, progress, a.lr)))
            stage["steps"] += 1
            if not timed:
                stage["amount"] += 1
            first = step.calls <= 4
            if first or len(seen) == 50 or stage["amount"] >= amount:
                mean = torch.stack(seen).mean(0).tolist()
                now = time.time()
                if timed and not first:
                    stage["amount"] += now - tick
                line = dict(zip(step.names, mean)) | {"step": at + 1, "length": length, "at": now - started, "progress": progress}
                line["ms"] = 1000 * (now - (tick or now)) / len(seen)
                line = {k: float(f"{v:.4g}") for k, v in line.items()}
                log.write(json.dumps(line) + "\n")
                log.flush()
                if first or stage["steps"] % 250 == 0 or stage["amount"] >= amount:
                    print(line, flush=True)
                seen, tick = [], now
                if not line["loss"] < 100:
                    raise SystemExit("the loss is no number")
        del step
    torch.save({"made": made, "state": opt.state, "weights": {k: w.detach() for k, w in weights.items()}}, state_path)
    checkpoint.save(f"{a.out}/model.safetensors", weights, tables, {"format": "pt"})
    json.dump(s.to_config(), open(f"{a.out}/config.json", "w"), indent=2)
    print(f"stopped, stages done: {made}, after {time.time() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
