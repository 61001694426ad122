"""Dictionaries, byte arrays, threads and processes by fork; what it prints depends on nothing
but its argument, the scale."""
import hashlib
import multiprocessing
import os
import queue
import random
import sys
import threading
import zlib

scale = int(sys.argv[1])
fork = multiprocessing.get_context("fork")


def digest(*parts):
    h = hashlib.blake2b(digest_size=16)
    for part in parts:
        h.update(part)
    return h.hexdigest()


def dictionaries():
    d = {}
    for i in range(60_000 * scale):
        d[f"key {i * 7919 % 1_000_003}"] = (i, str(i), [i] * (i % 5))
    for i in range(0, 60_000 * scale, 3):
        d.pop(f"key {i * 7919 % 1_000_003}", None)
    copy = {v[1]: k for k, v in d.items()}
    nested = [{j: str(j) for j in range(i % 40)} for i in range(4_000 * scale)]
    nested = nested[::2] + [dict(n) for n in nested[1::2]]
    text = "".join(f"{k}={copy[k]};" for k in sorted(copy)[::11])
    print("dictionaries", len(d), len(copy), sum(map(len, nested)), digest(text.encode()))


def byte_arrays():
    r = random.Random(1)
    live = []
    h = hashlib.blake2b(digest_size=16)
    for i in range(1_500 * scale):
        b = bytearray(r.randbytes(r.choice((10, 300, 4_096, 10_240, 70_000))))
        b += bytes(i % 251 for _ in range(100))
        b *= 1 + i % 3
        del b[: len(b) // 7]
        b.extend(b[:1000])
        live.append(b)
        if len(live) > 200:
            h.update(live.pop(r.randrange(len(live))))
    grown = bytearray()
    for i in range(400 * scale):
        grown += live[i % len(live)][:5_000]
    packed = zlib.compress(bytes(grown), 1)
    assert zlib.decompress(packed) == grown
    print("byte arrays", h.hexdigest(), len(grown), digest(grown, *live))


def threads():
    """Blocks made by some threads die in others."""
    pipe = queue.Queue(64)
    done = {}

    def make(n):
        r = random.Random(n)
        for i in range(600 * scale):
            pipe.put((n, i, bytearray(r.randbytes(r.choice((20, 2_000, 9_000, 90_000))))))

    def take(n):
        sums = done.setdefault(n, {})
        kept = []
        while (item := pipe.get()) is not None:
            maker, i, b = item
            sums[maker, i] = zlib.crc32(b)
            kept.append(b)
            if len(kept) > 50:
                del kept[::2]

    makers = [threading.Thread(target=make, args=(n,)) for n in range(3)]
    takers = [threading.Thread(target=take, args=(n,)) for n in range(2)]
    for t in makers + takers:
        t.start()
    for t in makers:
        t.join()
    for _ in takers:
        pipe.put(None)
    for t in takers:
        t.join()
    sums = done[0] | done[1]
    assert len(sums) == 3 * 600 * scale
    print("threads", digest(repr(sorted(sums.items())).encode()))
    # Many threads that live for a moment.
    out = []
    for n in range(60):
        some = [threading.Thread(target=lambda: out.append(len(bytearray(30_000)))) for _ in range(8)]
        for t in some:
            t.start()
        for t in some:
            t.join()
    print("short threads", len(out), sum(out))


def child(go, answer, blocks, words, n):
    before = digest(*blocks, repr(words).encode())
    answer.send(before)
    assert go.recv() == "overwritten"
    # The parent has overwritten all of its memory since.
    assert digest(*blocks, repr(words).encode()) == before, "the child sees the parent's writes"
    for i, b in enumerate(blocks):
        b[:] = bytes([n]) * len(b)
        b += b"more" * 500
    words.clear()
    mine = [bytearray(os.urandom(1)) * (1 << k % 18) for k in range(300)]
    answer.send((sum(map(len, mine)), digest(*blocks)))
    answer.close()


def processes():
    r = random.Random(2)
    blocks = [bytearray(r.randbytes(n)) for n in (50, 600, 5_000, 10_240, 102_400, 700_000) for _ in range(12)]
    words = {str(i): [i, str(i)] for i in range(3_000)}
    stop = threading.Event()

    def busy():
        # Allocates all the time, so that forks happen in the middle of it.
        kept = []
        while not stop.is_set():
            kept.append(bytearray(20_000))
            if len(kept) > 40:
                kept.clear()

    noise = threading.Thread(target=busy)
    noise.start()
    for round in range(3):
        family = []
        for n in range(2):
            go, went = fork.Pipe()
            answer, answered = fork.Pipe()
            p = fork.Process(target=child, args=(went, answered, blocks, words, n))
            p.start()
            assert answer.recv() == digest(*blocks, repr(words).encode())
            family.append((p, go, answer))
        for i, b in enumerate(blocks):
            b[:] = bytes((i + round + k) % 256 for k in range(64)) * (len(b) // 64)
        for i in range(0, 3_000, 2):
            words[str(i)] = [i, f"{round} {i}"]
        parent = digest(*blocks, repr(words).encode())
        for p, go, answer in family:
            go.send("overwritten")
            size, theirs = answer.recv()
            print("child", round, size, theirs)
            p.join()
            assert p.exitcode == 0, p.exitcode
        assert digest(*blocks, repr(words).encode()) == parent, "the parent sees a child's writes"
        print("parent", round, parent)
    stop.set()
    noise.join()


def square(job):
    n, data = job
    return n, zlib.crc32(data * n), data[::2]


def pool():
    jobs = [(n % 9 + 1, bytes([n % 256]) * 9_000) for n in range(200 * scale)]
    with fork.Pool(2) as workers:
        results = workers.map(square, jobs, chunksize=5)
    print("pool", len(results), digest(repr(results).encode()))


for part in (dictionaries, byte_arrays, threads, processes, pool):
    part()
    sys.stdout.flush()
