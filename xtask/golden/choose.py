"""Chooses conversations by golden's margin: python choose.py recall.csv [N] > lines for `selected` of a scenario.

recall.csv is that of `karat recall FILE.toml --golden --out DIR` on a recipe with many conversations. Conversations are
taken greedily, the one that fills the emptiest strata most first, until each stratum (0.5 to 1, 1 to 2, 2 to 4 nats) holds
N questions (104 by default) or nothing more fills one. A line: number of the conversation, worst margin of each question."""

import collections
import csv
import sys

STRATA = {"0.5-1": (0.5, 1), "1-2": (1, 2), "2-4": (2, 4)}


def in_strata(margins):
    """Questions of a conversation in each stratum."""
    return {k: sum(a <= m < b for m in margins) for k, (a, b) in STRATA.items()}


def main():
    rows = collections.defaultdict(dict)
    for path in sys.argv[1].split(","):
        for r in csv.DictReader(open(path)):
            number = int(r["conversation"].rsplit("-", 1)[1])
            rows[number][int(r["question"])] = float(r["worst_margin_golden"])
    talks = {n: [m for _, m in sorted(q.items())] for n, q in rows.items()}
    total = collections.Counter()
    for margins in talks.values():
        total.update(in_strata(margins))
    left = dict.fromkeys(STRATA, int(sys.argv[2]) if len(sys.argv) > 2 else 104)
    pool, chosen = dict(talks), []
    while pool and any(v > 0 for v in left.values()):

        def gain(n):
            # A question counts by how rare its stratum is, as long as the stratum is not full.
            return sum(min(v, max(left[k], 0)) / max(total[k], 1) for k, v in in_strata(pool[n]).items())

        best = max(pool, key=lambda n: (gain(n), -n))
        if gain(best) == 0:
            break
        for k, v in in_strata(pool.pop(best)).items():
            left[k] -= v
        chosen.append(best)
    found = collections.Counter()
    for n in sorted(chosen):
        found.update(in_strata(talks[n]))
        print(n, " ".join(f"{m:.2f}" for m in talks[n]))
    print(f"{len(chosen)} of {len(talks)} conversations, {dict(found)} of {dict(total)}", file=sys.stderr)


if __name__ == "__main__":
    main()
