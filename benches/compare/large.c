/* Large blocks, and blocks that become large. */
#include "work.h"

#define LIVE 3
#define PAGE ((size_t)4096)

static size_t large_size(struct rng *r)
{
    return MIB + below(r, 31 * 16 + 1) * (64 * KIB);
}

/* The mapping of fresh memory and its return are what is paid for here, the faults of one page
 * or of all of them. */
static void large(struct hand *h, size_t times, int all)
{
    struct block live[LIVE] = {0};
    for (size_t n = times; n; n--) {
        struct block *b = &live[below(&h->rng, LIVE)];
        if (b->p) {
            check_at(b, all ? b->size : PAGE);
            free(b->p);
        }
        b->size = (uint32_t)large_size(&h->rng);
        b->tag = (uint32_t)draw(&h->rng);
        b->p = malloc(b->size);
        if (!b->p)
            die("malloc failed");
        if (all)
            memset(b->p, (int)b->tag, b->size);
        stamp_at(b, all ? b->size : PAGE);
        h->check += b->size;
        h->operations++;
    }
    for (int i = 0; i < LIVE; i++)
        free(live[i].p);
}

static void first_hand(struct hand *h)
{
    large(h, scaled(h->job, 500000), 0);
}

void large_first(struct job *job)
{
    in_threads(job, first_hand);
}

static void all_hand(struct hand *h)
{
    large(h, scaled(h->job, 120), 1);
}

void large_all(struct job *job)
{
    in_threads(job, all_hand);
}

/* Vectors and strings that grow side by side, so that none has the space behind it to itself. */
#define GROWING 16

static void longer(struct hand *h, struct block *b, size_t size)
{
    /* The stamp follows from the address and the size, so that this checks the old one ... */
    check_at(b, b->size);
    uint64_t first, last;
    memcpy(&first, b->p, 8);
    char *p = realloc(b->p, size);
    if (!p)
        die("realloc failed");
    /* ... and this that realloc brought its two ends along. */
    uint64_t head;
    memcpy(&head, p, 8);
    memcpy(&last, p + (b->size >= 16 ? b->size - 8 : 0), 8);
    if (head != first || last != first)
        die("realloc has lost contents");
    b->p = p;
    b->size = (uint32_t)size;
    stamp_at(b, size);
    h->check += size;
    h->operations++;
}

static void grow_hand(struct hand *h)
{
    struct block live[GROWING] = {0};
    for (size_t n = scaled(h->job, 6000000); n; n--) {
        struct block *b = &live[below(&h->rng, GROWING)];
        size_t limit = (size_t)4096 << below(&h->rng, 9);
        if (!b->p)
            *b = get(&h->rng, 16 + below(&h->rng, 48));
        else if (b->size > limit)
            put(b);
        else if (draw(&h->rng) & 1)
            longer(h, b, b->size + b->size / 2);
        else
            longer(h, b, b->size + 24 + below(&h->rng, 100));
    }
    for (int i = 0; i < GROWING; i++)
        if (live[i].p)
            put(&live[i]);
}

void grow(struct job *job)
{
    in_threads(job, grow_hand);
}
