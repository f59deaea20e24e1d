"""Distributions of the sampler chain, in numpy and double precision, written from the papers' and llama.cpp's definitions.

    python3 crates/sample/witness/chain.py crates/sample/tests/fixtures/chain.json

Each case: a row of logits, the tokens before it, parameters, and the probability of every token that may be drawn. A case
whose outcome hangs on less than a millionth (a token on the edge of a filter) is drawn again, so that single precision
cannot decide it otherwise. Mirostat's cases are sequences, since the token drawn at each step moves the bound; it is drawn
with Philox4x32-10, as the sampler does: the seed is the key, the number of the step the counter.
"""

import json
import math
import sys

import numpy as np

EDGE = 1e-6
USUAL = ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"]
NEUTRAL = dict(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


class Edge(Exception):
    pass


def apart(values, bound):
    """No value lies on the bound."""
    if len(values) and np.min(np.abs(np.asarray(values, float) - bound)) < EDGE:
        raise Edge


def softmax(l):
    e = np.exp(l - np.max(l))
    return e / e.sum()


def by_falling(l, ids):
    return sorted(range(len(ids)), key=lambda i: (-l[i], ids[i]))


def penalties(l, ids, p, history):
    n = p.get("repeat_last_n", 64)
    seen = history if n < 0 else history[len(history) - min(n, len(history)):]
    l = l.copy()
    for i, t in enumerate(ids):
        count = seen.count(int(t))
        if count:
            r = p.get("repeat_penalty", 1.0)
            l[i] = l[i] / r if l[i] > 0 else l[i] * r
            l[i] -= count * p.get("frequency_penalty", 0.0) + p.get("presence_penalty", 0.0)
    return l, ids


def dry(l, ids, p, history):
    mult, base = p.get("dry_multiplier", 0.0), p.get("dry_base", 1.75)
    allowed, n = p.get("dry_allowed_length", 2), p.get("dry_penalty_last_n", 64)
    if mult == 0:
        return l, ids
    seen = history if n < 0 else history[max(0, len(history) - n):]
    longest = {}
    for end in range(1, len(seen)):  # what lies before seen[end], beside what lies at the very end
        k = 0
        while k < end and seen[end - 1 - k] == seen[len(seen) - 1 - k]:
            k += 1
        if k >= allowed:
            longest[seen[end]] = max(longest.get(seen[end], 0), k)
    l = l.copy()
    for i, t in enumerate(ids):
        if int(t) in longest:
            l[i] -= mult * base ** (longest[int(t)] - allowed)
    return l, ids


def top_n_sigma(l, ids, p, history):
    n = p.get("top_n_sigma", -1.0)
    if n <= 0:
        return l, ids
    least = l.max() - n * l.std()
    apart(l, least)
    return l[l >= least], ids[l >= least]


def top_k(l, ids, p, history):
    k = p.get("top_k", 40)
    keep = by_falling(l, ids)[: k or None]
    return l[keep], ids[keep]


def run(prob, order, bound):
    sums = np.cumsum(prob[order])
    apart(sums[:-1], bound)
    return order[: int(np.argmax(sums >= min(bound, sums[-1]))) + 1]


def typ_p(l, ids, p, history):
    bound = p.get("typical_p", 1.0)
    if bound >= 1:
        return l, ids
    prob = softmax(l)
    entropy = -(prob * np.log(prob)).sum()
    off = np.abs(-np.log(prob) - entropy)
    order = sorted(range(len(ids)), key=lambda i: off[i])
    if len(off) > 1 and np.min(np.diff(np.sort(off))) < EDGE:
        raise Edge
    keep = run(prob, order, bound)
    return l[keep], ids[keep]


def top_p(l, ids, p, history):
    bound = p.get("top_p", 0.95)
    if bound >= 1:
        return l, ids
    keep = run(softmax(l), by_falling(l, ids), bound)
    return l[keep], ids[keep]


def min_p(l, ids, p, history):
    bound = p.get("min_p", 0.05)
    prob = softmax(l)
    part = prob / prob.max()
    apart(part[part < 1], bound)
    keep = part >= bound
    return l[keep], ids[keep]


def xtc(l, ids, p, history):
    chance = p.get("xtc_probability", 0.0)
    assert chance in (0.0, 1.0), "only what needs no random number has a witness"
    if chance == 0:
        return l, ids
    prob = softmax(l)
    if p["xtc_threshold"] > 0:
        apart(prob, p["xtc_threshold"])
    order = by_falling(l, ids)
    strong = sum(prob >= p["xtc_threshold"])
    keep = order[max(strong - 1, 0):]
    return l[keep], ids[keep]


def temperature(l, ids, p, history):
    t, r = p.get("temperature", 0.8), p.get("dynatemp_range", 0.0)
    if r > 0 and len(l) > 1:
        prob = softmax(l)
        part = -(prob * np.log(prob)).sum() / math.log(len(l))
        low = max(0.0, t - r)
        t = low + (t + r - low) * part ** p.get("dynatemp_exponent", 1.0)
    if t == 0:
        keep = by_falling(l, ids)[:1]
        return l[keep], ids[keep]
    return l / t, ids


STAGES = dict(penalties=penalties, dry=dry, top_n_sigma=top_n_sigma, top_k=top_k, typ_p=typ_p, top_p=top_p, min_p=min_p,
              xtc=xtc, temperature=temperature)


def possible(logits):
    l = np.asarray(logits, np.float64)
    ids = np.arange(len(l))
    return l[l > -np.inf], ids[l > -np.inf]


def chain(logits, p, history):
    logits = np.asarray(logits, np.float64).copy()
    for token, bias in p.get("logit_bias", []):
        logits[token] += bias
    l, ids = possible(logits)
    for name in p.get("samplers", USUAL):
        l, ids = STAGES[name](l, ids, p, history)
    return distribution(l, ids)


def distribution(l, ids):
    order = np.argsort(ids)
    prob = softmax(l)[order]
    return [[int(t), float(q)] for t, q in zip(ids[order], prob)]


def philox(key, counter):
    """The first 53 bits of a block of Philox4x32-10, as a number below 1."""
    k, c = [key & 0xFFFFFFFF, key >> 32], [counter & 0xFFFFFFFF, counter >> 32, 0, 0]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return ((c[0] << 32 | c[1]) >> 11) / 2**53


def mirostat(logits, p, steps):
    tau, eta = p.get("mirostat_tau", 5.0), p.get("mirostat_eta", 0.1)
    mu, out = 2 * tau, []
    for step, row in enumerate(logits[:steps]):
        l, ids = temperature(*possible(row), p, [])
        surprise = -np.log2(softmax(l))
        apart(surprise, mu)
        keep = surprise <= mu
        if not keep.any():
            keep = surprise == surprise.min()
        dist = distribution(l[keep], ids[keep])
        q = np.array([x[1] for x in dist])
        sums = np.cumsum(q)
        u = philox(p["seed"], step) * sums[-1]
        apart(sums, u)
        i = int(np.argmax(sums > u))
        mu -= eta * (-math.log2(q[i]) - tau)
        out.append(dict(expected=dist, token=dist[i][0]))
    return out


def single(x):
    """What single precision makes of a number, so that both sides begin with the same."""
    return float(np.float32(x))


def row(rng, n, spread, masked=0):
    l = [single(x) for x in np.round(rng.normal(0, spread, n), 3)]
    for i in rng.choice(n, masked, replace=False):
        l[int(i)] = -math.inf
    return l


def wishes():
    n = NEUTRAL
    yield "temperature", [dict(n, temperature=t) for t in (0.1, 0.7, 1.0, 3.0, 1e30)]
    yield "greedy", [dict(n, temperature=0.0)]
    yield "dynamic temperature", [dict(n, temperature=1.0, dynatemp_range=r, dynatemp_exponent=e)
                                  for r, e in ((0.5, 1.0), (2.0, 1.0), (0.9, 0.3), (0.4, 4.0))]
    yield "top_k", [dict(n, top_k=k) for k in (1, 2, 17, 200)]
    yield "top_p", [dict(n, top_p=p) for p in (0.0, 0.1, 0.5, 0.9, 0.999)]
    yield "min_p", [dict(n, min_p=p) for p in (0.01, 0.3, 1.0)]
    yield "typical", [dict(n, typical_p=p) for p in (0.0, 0.2, 0.5, 0.9, 0.99)]
    yield "top_n_sigma", [dict(n, top_n_sigma=s) for s in (0.1, 1.0, 2.5, 0.0, -1.0)]
    yield "xtc", [dict(n, xtc_probability=1.0, xtc_threshold=t) for t in (0.0, 0.01, 0.05, 0.2, 0.4, 0.9)]
    yield "penalties", [dict(n, repeat_penalty=1.3), dict(n, repeat_penalty=0.7), dict(n, presence_penalty=0.9),
                        dict(n, frequency_penalty=-0.4, repeat_last_n=5), dict(n, repeat_penalty=1.2, repeat_last_n=-1,
                        frequency_penalty=0.2, presence_penalty=0.1)]
    yield "dry", [dict(n, dry_multiplier=m, dry_base=b, dry_allowed_length=a, dry_penalty_last_n=w, dry_sequence_breakers=[])
                  for m, b, a, w in ((0.8, 1.75, 2, 64), (1.5, 1.2, 1, -1), (0.3, 2.0, 0, 12), (1.0, 1.0, 3, -1))]
    yield "bias", [dict(n, logit_bias=[[3, 2.5], [7, -1.25], [3, 0.5]])]
    yield "all", [dict(temperature=0.9, top_k=30, top_p=0.9, min_p=0.02, typical_p=0.95, top_n_sigma=2.0, xtc_probability=1.0,
                       xtc_threshold=0.1, repeat_penalty=1.1, presence_penalty=0.2, dry_multiplier=0.8,
                       dry_sequence_breakers=[], dynatemp_range=0.3, logit_bias=[[1, 1.0]])]
    orders = (["temperature", "top_k", "top_p"], ["min_p", "temperature", "penalties"], ["top_k", "dry", "typ_p"],
              ["xtc", "top_k"], ["temperature", "top_n_sigma", "min_p"], [], ["temperature", "penalties", "top_p"])
    yield "order", [dict(temperature=1.7, top_k=9, top_p=0.8, min_p=0.1, typical_p=0.7, top_n_sigma=1.5, xtc_probability=1.0,
                         xtc_threshold=0.03, repeat_penalty=1.4, dry_multiplier=1.1, dry_sequence_breakers=[], samplers=o)
                    for o in orders]


def main(path):
    rng = np.random.default_rng(20260101)
    rows = [row(rng, 60, 2.0), row(rng, 60, 1.0), row(rng, 60, 5.0, masked=9), row(rng, 2, 1.0), row(rng, 60, 0.3)]
    cases = []
    for name, all_params in wishes():
        for params in all_params:
            params = {k: single(v) if isinstance(v, float) else v for k, v in params.items()}
            for _ in range(2):
                for attempt in range(1000):
                    which = int(rng.integers(len(rows)))
                    size = len(rows[which])
                    if any(t >= size for t, _ in params.get("logit_bias", [])):
                        continue
                    history = [int(x) for x in rng.integers(0, min(size, 5), 40)]
                    try:
                        expected = chain(rows[which], params, history)
                    except Edge:
                        rows.append(row(rng, 60, float(rng.uniform(0.5, 3))))
                        assert attempt < 999, params
                        continue
                    cases.append(dict(name=name, row=which, history=history, params=params, expected=expected))
                    break
    sequences = []
    for params in (dict(mirostat=2), dict(mirostat=2, mirostat_tau=2.0, mirostat_eta=0.5), dict(mirostat=2, mirostat_tau=0.0),
                   dict(mirostat=2, mirostat_tau=3.0, mirostat_eta=1.0, temperature=1.5)):
        params = {k: single(v) if isinstance(v, float) else v for k, v in params.items()}
        params["seed"] = 2**40 + 17
        while True:
            logits = [row(rng, 40, 2.0) for _ in range(6)]
            try:
                steps = mirostat([[single(x) for x in r] for r in logits], params, 6)
            except Edge:
                continue
            break
        sequences.append(dict(params=params, rows=logits, steps=steps))
    used = sorted({c["row"] for c in cases})
    for c in cases:
        c["row"] = used.index(c["row"])
    numbers = lambda r: [None if x == -math.inf else round(x, 3) for x in r]
    short = lambda e: [[t, float(f"{q:.7g}")] for t, q in e]
    for c in cases:
        c["expected"] = short(c["expected"])
    for s in sequences:
        s["rows"] = [numbers(r) for r in s["rows"]]
        for step in s["steps"]:
            step["expected"] = short(step["expected"])
    lines = lambda items: ",\n".join(json.dumps(i, separators=(",", ":")) for i in items)
    with open(path, "w") as f:
        f.write('{"rows":[\n' + lines(numbers(rows[i]) for i in used) + '\n],"cases":[\n' + lines(cases)
                + '\n],"mirostat":[\n' + lines(sequences) + "\n]}\n")
    print(len(cases), "cases,", len(sequences), "sequences")


main(sys.argv[1])
