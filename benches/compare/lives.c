/* Blocks of short and long lives side by side, and threads of short lives. */
#include "work.h"

/* What survives a phase is scattered over everything the phase allocated, and the next phase asks
 * for other sizes than the holes have. */
#define PHASES 24
#define BURST 1000
#define LONG 60000

static size_t phase_size(struct rng *r, int phase)
{
    static const size_t around[] = {24, 200, 56, 1200, 100, 3000, 400, 40, 9000, 700};
    size_t middle = around[phase % (sizeof around / sizeof *around)];
    return 8 + middle / 2 + below(r, middle);
}

static void lives_hand(struct hand *h)
{
    struct block *kept = calloc(LONG, sizeof *kept), burst[BURST] = {0};
    if (!kept)
        die("calloc failed");
    size_t bursts = scaled(h->job, 500);
    for (int phase = 0; phase < PHASES; phase++) {
        for (size_t n = 0; n < bursts; n++) {
            for (int i = 0; i < BURST; i++)
                replace(h, &burst[i], phase_size(&h->rng, phase));
            /* One in twenty is kept, in the place of one from any phase before. */
            for (int i = (int)(n % 20); i < BURST; i += 20) {
                struct block *old = &kept[below(&h->rng, LONG)];
                if (old->p)
                    put(old);
                *old = burst[i];
                burst[i].p = NULL;
            }
        }
        /* At a phase's end a stretch of long lives ends at once. */
        for (size_t n = LONG / 3, i = below(&h->rng, LONG); n; n--, i++)
            if (kept[i % LONG].p)
                put(&kept[i % LONG]);
    }
    for (int i = 0; i < BURST; i++)
        if (burst[i].p)
            put(&burst[i]);
    for (size_t i = 0; i < LONG; i++)
        if (kept[i].p)
            put(&kept[i]);
    free(kept);
}

void lives(struct job *job)
{
    in_threads(job, lives_hand);
}

/* Threads that stay for a few hundred blocks, free half of them and leave the rest to their host. */
#define LUGGAGE 300

struct visit {
    struct hand hand;
    struct block left[LUGGAGE];
};

static void *visit(void *arg)
{
    struct visit *v = arg;
    for (int i = 0; i < LUGGAGE; i++) {
        v->left[i].p = NULL;
        replace(&v->hand, &v->left[i], small_size(&v->hand.rng));
    }
    for (int i = 0; i < LUGGAGE; i += 2)
        put(&v->left[i]);
    return NULL;
}

static void host(struct hand *h)
{
    struct visit *v = malloc(sizeof *v);
    if (!v)
        die("malloc failed");
    for (size_t n = scaled(h->job, 14000); n; n--) {
        pthread_t visitor;
        v->hand = (struct hand){h->job, h->number, {draw(&h->rng)}, 0, 0};
        if (pthread_create(&visitor, NULL, visit, v))
            die("no thread");
        pthread_join(visitor, NULL);
        h->check += v->hand.check;
        h->operations += v->hand.operations;
        for (int i = 1; i < LUGGAGE; i += 2)
            put(&v->left[i]);
    }
    free(v);
}

void visitors(struct job *job)
{
    in_threads(job, host);
}
