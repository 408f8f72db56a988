#!/usr/bin/env python3
"""NDCG@k by scikit-learn, and hit rate@k over all orders of equal scores, of small groups of samples.

    python3 tools/reference/ranking_metrics.py tests/golden/ranking_metrics.json

Needs NumPy and scikit-learn. Scores are few, so that many are equal: scikit-learn's NDCG is the mean over their orders,
and the hit rate is counted here over every order of a group.
"""

import itertools
import json
import random
import sys

import sklearn.metrics

PLACES = (1, 2, 3, 5, 20)


def hit_rate(labels, scores, k):
    orders = [order for order in itertools.permutations(range(len(labels)))
              if all(scores[a] >= scores[b] for a, b in zip(order, order[1:]))]
    return sum(any(labels[i] for i in order[:k]) for order in orders) / len(orders)


def main():
    draw = random.Random(11)
    groups = []
    for group in range(60):
        size = draw.randint(2, 7)
        labels = [int(draw.random() < 0.3) for _ in range(size)]
        scores = [draw.randrange(-4, 4) / 4 for _ in range(size)]
        groups.append({"labels": labels, "scores": scores})
    clicked = [group for group in groups if any(group["labels"])]
    top = []
    for k in PLACES:
        ndcg = [sklearn.metrics.ndcg_score([group["labels"]], [group["scores"]], k=k) for group in clicked]
        hits = [hit_rate(group["labels"], group["scores"], k) for group in clicked]
        top.append({"k": k, "ndcg": sum(ndcg) / len(ndcg), "hit_rate": sum(hits) / len(hits)})
    with open(sys.argv[1], "w") as file:
        lines = ",\n".join("  " + json.dumps(group) for group in groups)
        file.write('{"clicked_groups": %d,\n "top": %s,\n "groups": [\n%s\n]}\n' % (len(clicked), json.dumps(top), lines))


main()
