/*
 * pairs: run one pattern of allocation calls N times, for a counter of instructions to watch.
 *
 *     pairs real|empty PATTERN N [SIZE] [mark]
 *
 * "real" calls whatever malloc the dynamic linker found, "empty" calls functions that do
 * nothing, through the same pointers in the same loops: the difference between the two is the
 * allocator's, without the loop, the call and the return.  A run with 2N less a run with N
 * leaves out the start and the end of the process as well.
 *
 * The last line of output names the shared object that malloc came from, so that whoever
 * preloads an allocator can tell that it was in fact used.  With "mark" the loops stand between
 * two SIGUSR1, which a tracer keeps from us, after a run that nobody counts.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 500  /* blocks of a fifo, lifo or remote batch */
#define LIVE 1024  /* blocks alive at a time in "random" */

/* Called through this table, which the compiler cannot see through: no call is direct, none
 * goes through the PLT, none is inlined or left out as a malloc without effect. */
struct calls {
    void *(*malloc)(size_t);
    void (*free)(void *);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    int (*posix_memalign)(void **, size_t, size_t);
    size_t (*usable)(void *);
    void *(*new)(size_t);
    void (*delete)(void *, size_t);
};

static char nothing[64];
static void *no_malloc(size_t n) { (void)n; return nothing; }
static void no_free(void *p) { (void)p; }
static void *no_calloc(size_t k, size_t n) { (void)k; (void)n; return nothing; }
static void *no_realloc(void *p, size_t n) { (void)p; (void)n; return nothing; }
static int no_posix_memalign(void **p, size_t a, size_t n) { (void)a; (void)n; *p = nothing; return 0; }
static size_t no_usable(void *p) { (void)p; return sizeof nothing; }
static void no_delete(void *p, size_t n) { (void)p; (void)n; }

/* C++'s operator new, and delete with a size; libstdc++'s where the allocator has none. */
extern void *_Znwm(size_t);
extern void _ZdlPvm(void *, size_t);

static volatile struct calls to;
static void *batch[BATCH];

static void pair(size_t n, size_t size)
{
    for (size_t i = 0; i < n; i++)
        to.free(to.malloc(size));
}

/* The same while another block of the size is alive, so that the slab (page, span) of the class
 * never runs empty: some allocators take a slow path whenever it does. */
static void held(size_t n, size_t size)
{
    void *other = to.malloc(size);
    pair(n, size);
    to.free(other);
}

static void fifo(size_t n, size_t size)
{
    for (size_t r = 0; r < n / BATCH; r++) {
        for (size_t i = 0; i < BATCH; i++)
            batch[i] = to.malloc(size);
        for (size_t i = 0; i < BATCH; i++)
            to.free(batch[i]);
    }
}

static void lifo(size_t n, size_t size)
{
    for (size_t r = 0; r < n / BATCH; r++) {
        for (size_t i = 0; i < BATCH; i++)
            batch[i] = to.malloc(size);
        for (size_t i = BATCH; i-- > 0;)
            to.free(batch[i]);
    }
}

/* Replaces a block picked at random by one of random size, 1 to SIZE bytes.  The generator is
 * seeded alike in every run: all allocators see the same requests. */
static void random_sizes(size_t n, size_t size)
{
    static void *live[LIVE];
    uint64_t x = 0x9E3779B97F4A7C15u;
    for (size_t i = 0; i < n; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        size_t slot = (x >> 20) % LIVE;
        to.free(live[slot]);
        live[slot] = to.malloc((x >> 40) % size + 1);
    }
    for (size_t i = 0; i < LIVE; i++)
        to.free(live[i]);
}

static void zeroed(size_t n, size_t size)
{
    for (size_t i = 0; i < n; i++)
        to.free(to.calloc(1, size));
}

static void aligned(size_t n, size_t size)
{
    for (size_t i = 0; i < n; i++) {
        void *p = NULL;
        if (to.posix_memalign(&p, 64, size) != 0)
            abort();
        to.free(p);
    }
}

/* One chain: 16 bytes, doubled up to SIZE, then freed. */
static void doubling(size_t n, size_t size)
{
    for (size_t i = 0; i < n; i++) {
        void *p = to.malloc(16);
        for (size_t s = 32; s <= size; s *= 2)
            p = to.realloc(p, s);
        to.free(p);
    }
}

static void operators(size_t n, size_t size)
{
    for (size_t i = 0; i < n; i++)
        to.delete(to.new(size), size);
}

static void usable(size_t n, size_t size)
{
    void *p = to.malloc(size);
    size_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += to.usable(p);
    to.free(p);
    if (sum < n * size)
        abort();
}

/* One thread allocates, another frees.  They take turns, a batch each, so that the order of
 * events does not depend on the scheduler (valgrind runs one thread at a time anyway). */
static sem_t full, drained;
static size_t batches;

static void *freer(void *unused)
{
    for (size_t r = 0; r < batches; r++) {
        sem_wait(&full);
        for (size_t i = 0; i < BATCH; i++)
            to.free(batch[i]);
        sem_post(&drained);
    }
    return unused;
}

static void remote(size_t n, size_t size)
{
    pthread_t other;
    batches = n / BATCH;
    sem_init(&full, 0, 0);
    sem_init(&drained, 0, 0);
    if (pthread_create(&other, NULL, freer, NULL) != 0)
        abort();
    for (size_t r = 0; r < batches; r++) {
        for (size_t i = 0; i < BATCH; i++)
            batch[i] = to.malloc(size);
        sem_post(&full);
        sem_wait(&drained);
    }
    pthread_join(other, NULL);
}

static const struct { const char *name; void (*run)(size_t, size_t); } patterns[] = {
    {"pair", pair}, {"held", held}, {"fifo", fifo}, {"lifo", lifo}, {"random", random_sizes},
    {"calloc", zeroed}, {"memalign", aligned}, {"realloc", doubling},
    {"operators", operators}, {"usable", usable}, {"remote", remote},
};

int main(int argc, char **argv)
{
    if (argc < 4)
        return fprintf(stderr, "usage: pairs real|empty PATTERN N [SIZE] [mark]\n"), 2;
    if (strcmp(argv[1], "real") == 0)
        to = (struct calls){malloc, free, calloc, realloc, posix_memalign, malloc_usable_size,
                            _Znwm, _ZdlPvm};
    else
        to = (struct calls){no_malloc, no_free, no_calloc, no_realloc, no_posix_memalign, no_usable,
                            no_malloc, no_delete};
    size_t n = strtoull(argv[3], NULL, 10);
    size_t size = argc > 4 ? strtoull(argv[4], NULL, 10) : 64;
    int mark = argc > 5 && strcmp(argv[5], "mark") == 0;
    void (*run)(size_t, size_t) = NULL;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        if (strcmp(argv[2], patterns[i].name) == 0)
            run = patterns[i].run;
    if (run == NULL)
        return fprintf(stderr, "pairs: no pattern %s\n", argv[2]), 2;

    if (mark) {
        run(n, size);
        raise(SIGUSR1);
    }
    run(n, size);
    if (mark)
        raise(SIGUSR1);

    Dl_info from = {0};
    void *sym = dlsym(RTLD_DEFAULT, "malloc");
    if (sym == NULL || dladdr(sym, &from) == 0)
        return 1;
    printf("malloc of %s\n", from.dli_fname);
    return 0;
}
