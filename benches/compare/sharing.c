/*
 * False sharing: threads that write to small blocks of their own, as fast as they can.  It costs
 * dearly if the allocator puts the blocks of two threads into one cache line, be it for a request
 * (active), or because it hands a thread the rest of a line that another one still uses (passive).
 */
#include "work.h"

#define WRITES 400

static struct block gifts[64];

static void write_to(struct block *b)
{
    volatile char *last = b->p + b->size - 1;
    char was = *last;
    for (int i = 0; i < WRITES; i++)
        (*last)++;
    *last = was;
}

static void writes(struct hand *h)
{
    for (size_t n = scaled(h->job, 600000); n; n--) {
        struct block b = get(&h->rng, 16);
        write_to(&b);
        put(&b);
        h->operations++;
    }
}

void share_active(struct job *job)
{
    in_threads(job, writes);
}

static void writes_after_gift(struct hand *h)
{
    write_to(&gifts[h->number]);
    put(&gifts[h->number]);
    writes(h);
}

/* All gifts come from one thread, one after the other: neighbours, most likely. */
void share_passive(struct job *job)
{
    struct rng r = {99};
    for (int i = 0; i < job->threads; i++)
        gifts[i] = get(&r, 16);
    in_threads(job, writes_after_gift);
}
