/* Blocks that one thread allocates and another frees. */
#include "work.h"

#define BATCH 256
#define DEEP 32

/* Batches on their way from one thread to one other. */
struct pipe {
    _Alignas(128) pthread_mutex_t lock;
    pthread_cond_t moved;
    size_t in, out;
    struct block *held[DEEP];
};

static struct pipe pipes[64];

static void open_pipes(struct job *job)
{
    for (int i = 0; i < job->threads; i++) {
        pthread_mutex_init(&pipes[i].lock, NULL);
        pthread_cond_init(&pipes[i].moved, NULL);
        pipes[i].in = pipes[i].out = 0;
    }
}

static void send(struct pipe *to, struct block *batch)
{
    pthread_mutex_lock(&to->lock);
    while (to->in - to->out == DEEP)
        pthread_cond_wait(&to->moved, &to->lock);
    to->held[to->in++ % DEEP] = batch;
    pthread_cond_signal(&to->moved);
    pthread_mutex_unlock(&to->lock);
}

static struct block *receive(struct pipe *from)
{
    pthread_mutex_lock(&from->lock);
    while (from->in == from->out)
        pthread_cond_wait(&from->moved, &from->lock);
    struct block *batch = from->held[from->out++ % DEEP];
    pthread_cond_signal(&from->moved);
    pthread_mutex_unlock(&from->lock);
    return batch;
}

/* The batch is itself a block that changes hands. */
static struct block *make(struct hand *h, size_t largest)
{
    struct block *batch = malloc(BATCH * sizeof *batch);
    if (!batch)
        die("malloc failed");
    for (int i = 0; i < BATCH; i++) {
        batch[i].p = NULL;
        replace(h, &batch[i], 8 + below(&h->rng, largest));
    }
    return batch;
}

static void consume(struct block *batch)
{
    for (int i = 0; i < BATCH; i++)
        put(&batch[i]);
    free(batch);
}

/* Each sends to the next and receives from the one before.  A thread is never more than two
 * batches ahead of its neighbour, so no pipe fills and nobody waits in a circle. */
static void exchange_hand(struct hand *h)
{
    struct pipe *own = &pipes[h->number], *next = &pipes[(h->number + 1) % h->job->threads];
    for (size_t n = scaled(h->job, 40000); n; n--) {
        send(next, make(h, 256));
        consume(receive(own));
    }
}

void exchange(struct job *job)
{
    open_pipes(job);
    in_threads(job, exchange_hand);
}

/* Even threads only allocate, odd ones only free. */
static void producer_hand(struct hand *h)
{
    struct pipe *pipe = &pipes[h->number / 2];
    for (size_t n = scaled(h->job, 60000); n; n--) {
        if (h->number % 2)
            consume(receive(pipe));
        else
            send(pipe, make(h, 400));
    }
}

void producer(struct job *job)
{
    job->threads += job->threads % 2;
    open_pipes(job);
    in_threads(job, producer_hand);
}
