/* Small objects that come and go: in one thread's hands, and in those of its successors. */
#include "work.h"

#define LIVE 4096

static void churn_hand(struct hand *h)
{
    static _Thread_local struct block live[LIVE];
    for (size_t n = scaled(h->job, 14000000); n; n--)
        replace(h, &live[below(&h->rng, LIVE)], small_size(&h->rng));
    for (size_t i = 0; i < LIVE; i++)
        if (live[i].p)
            put(&live[i]);
}

/* Every thread replaces blocks of its own at random; nothing is shared. */
void churn(struct job *job)
{
    in_threads(job, churn_hand);
}

/* A server whose connections outlive the threads that serve them: each generation replaces a
 * part of what it inherited, and frees blocks that threads long gone have allocated. */
#define CONNECTIONS 2000
#define GENERATIONS 40

struct chain {
    struct hand *hand;
    struct block *live;
    size_t requests;
};

static void *generation(void *arg)
{
    struct chain *c = arg;
    for (size_t n = c->requests; n; n--)
        replace(c->hand, &c->live[below(&c->hand->rng, CONNECTIONS)], 10 + below(&c->hand->rng, 500));
    return NULL;
}

static void larson_hand(struct hand *h)
{
    struct chain c = {h, calloc(CONNECTIONS, sizeof *c.live), scaled(h->job, 14000000) / GENERATIONS};
    if (!c.live)
        die("calloc failed");
    for (int i = 0; i < GENERATIONS; i++) {
        pthread_t successor;
        if (pthread_create(&successor, NULL, generation, &c))
            die("no thread");
        pthread_join(successor, NULL);
    }
    for (size_t i = 0; i < CONNECTIONS; i++)
        if (c.live[i].p)
            put(&c.live[i]);
    free(c.live);
}

void larson(struct job *job)
{
    in_threads(job, larson_hand);
}
