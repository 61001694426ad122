"""A deterministic Python run for `cargo bench --bench memory`: it grows, churns and gives back.

Prints the checksum of what it kept, so that runs can be told to have done the same, and what the
kernel says at the end, a while after most of it was freed: the second argument says how many tenths of
a second, 30 if it is left out."""

import random
import sys
import time

SCALE = float(sys.argv[1])
IDLE = int(sys.argv[2]) if len(sys.argv) > 2 else 30
rng = random.Random(42)


def text(n):
    return "%x" % rng.getrandbits(4 * n)


def count(n):
    return int(n * SCALE)


# A dictionary of strings, and lists of many lengths, as a parser would leave them.
table = {text(rng.randint(4, 24)): text(rng.randint(8, 200)) for _ in range(count(200_000))}
lists = [list(range(rng.randint(1, 300))) for _ in range(count(20_000))]
buffers = [bytearray(rng.randint(1_000, 100_000)) for _ in range(count(1_500))]
for b in buffers:
    b[:] = bytes([len(b) % 251]) * len(b)

# Churn: what is freed leaves holes that the next allocation must fit in.
keys = list(table)
for turn in range(4):
    for key in rng.sample(keys, len(keys) // 3):
        table[key] = text(rng.randint(8, 400))
    for i in rng.sample(range(len(lists)), len(lists) // 2):
        lists[i] = [turn] * rng.randint(1, 600)
    for i in rng.sample(range(len(buffers)), len(buffers) // 2):
        buffers[i] = bytearray(b"%d" % turn) * rng.randint(1_000, 100_000)

# Nine in ten go, at random.
for key in rng.sample(keys, len(keys) * 9 // 10):
    del table[key]
del keys
lists = [l for l in lists if rng.random() < 0.1]
buffers = [b for b in buffers if rng.random() < 0.1]

# A program that idles, and now and then does a little.
for _ in range(IDLE):
    time.sleep(0.1)
    [text(100) for _ in range(100)]

print("sum", sum(len(v) for v in table.values()) + sum(map(sum, lists)) + sum(map(sum, buffers)))
with open("/proc/self/status") as status:
    for line in status:
        if line.startswith(("VmHWM", "VmRSS")):
            name, kib, _ = line.split()
            print(name.rstrip(":"), kib)
