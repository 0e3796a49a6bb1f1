"""Writes golden/recall.csv: python counts.py recall.csv.. > golden/recall.csv, from bundles of
`karat recall NAME.. --golden --out DIR`. A line: scenario, conversation, questions asked, answers that golden gives."""

import collections
import csv
import sys


def main():
    counts = collections.defaultdict(lambda: [0, 0])
    for path in sys.argv[1:]:
        for r in csv.DictReader(open(path)):
            n = counts[r["scenario"], r["conversation"]]
            n[0] += 1
            n[1] += r["matched_golden"] == r["answer_tokens"]
    print("scenario,conversation,questions,golden")
    for (scenario, conversation), (asked, given) in sorted(counts.items()):
        print(f"{scenario},{conversation},{asked},{given}")


if __name__ == "__main__":
    main()
