/*
 * What the workloads share: blocks that carry a stamp, random numbers, threads.
 *
 * A block's stamp is at both of its ends and follows from its address, its size and a number drawn
 * for it: two owners of the same memory, even of the same size, stamp it differently.
 */
#ifndef WORK_H
#define WORK_H

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

struct rng { uint64_t state; };

struct block {
    char *p;
    uint32_t size;
    uint32_t tag;
};

/* One run, as the command line asks for it. */
struct job {
    int threads;
    size_t percent;         /* of the full length */
    uint64_t check;         /* what the work came to: equal under every allocator */
    uint64_t operations;
};

/* One thread of it. */
struct hand {
    struct job *job;
    int number;
    struct rng rng;
    uint64_t check;
    uint64_t operations;
};

_Noreturn void die(const char *what);
/* Runs "work" in as many threads as the job has, and adds up what they counted. */
void in_threads(struct job *job, void (*work)(struct hand *));

void churn(struct job *);
void larson(struct job *);
void exchange(struct job *);
void producer(struct job *);
void share_active(struct job *);
void share_passive(struct job *);
void large_first(struct job *);
void large_all(struct job *);
void grow(struct job *);
void lives(struct job *);
void visitors(struct job *);

static inline size_t scaled(const struct job *job, size_t full)
{
    size_t n = full * job->percent / 100;
    return n ? n : 1;
}

static inline uint64_t draw(struct rng *r)
{
    uint64_t x = r->state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Below n, which is far below 2^32: the bias does not matter here. */
static inline size_t below(struct rng *r, size_t n)
{
    return (size_t)((draw(r) >> 32) * n >> 32);
}

/* Sizes as programs ask for them: half of them up to 64 bytes, few above 512. */
static inline size_t small_size(struct rng *r)
{
    uint64_t x = draw(r);
    unsigned shift = (unsigned)__builtin_ctzll(x | 1 << 6);
    return 8 + ((x >> 32) & (((size_t)32 << shift) - 1)) % 2040;
}

static inline uint64_t stamp_of(const struct block *b)
{
    return ((uint64_t)(uintptr_t)b->p ^ ((uint64_t)b->tag << 32 | b->size)) * 0x9e3779b97f4a7c15u;
}

static inline void stamp_at(const struct block *b, size_t end)
{
    uint64_t s = stamp_of(b);
    memcpy(b->p, &s, 8);
    if (end >= 16)
        memcpy(b->p + end - 8, &s, 8);
}

static inline void check_at(const struct block *b, size_t end)
{
    uint64_t s = stamp_of(b), first, last;
    memcpy(&first, b->p, 8);
    memcpy(&last, b->p + (end >= 16 ? end - 8 : 0), 8);
    if (first != s || last != s)
        die("a block has lost its stamp");
}

static inline struct block get(struct rng *r, size_t size)
{
    struct block b = {malloc(size), (uint32_t)size, (uint32_t)draw(r)};
    if (!b.p)
        die("malloc failed");
    stamp_at(&b, size);
    return b;
}

static inline void put(struct block *b)
{
    check_at(b, b->size);
    free(b->p);
    b->p = NULL;
}

/* The same slot filled anew, or for the first time. */
static inline void replace(struct hand *h, struct block *b, size_t size)
{
    if (b->p)
        put(b);
    *b = get(&h->rng, size);
    h->check += size;
    h->operations++;
}

#endif
