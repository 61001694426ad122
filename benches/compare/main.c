/*
 * compare-work: one workload for a preloaded allocator, for `cargo bench --bench compare`.
 *
 *     compare-work WORKLOAD THREADS PERCENT
 *
 * Says where malloc came from, so that whoever preloads an allocator can tell that it was used;
 * what the work came to, which no allocator may change; and how long it took on the clock.
 * Status 3 is a fault of the allocator: a failed call or a block whose contents changed.
 */
#define _GNU_SOURCE
#include "work.h"

#include <dlfcn.h>
#include <time.h>

static const struct {
    const char *name;
    void (*run)(struct job *);
} workloads[] = {
    {"churn", churn},
    {"larson", larson},
    {"exchange", exchange},
    {"producer", producer},
    {"share-active", share_active},
    {"share-passive", share_passive},
    {"large-first", large_first},
    {"large-all", large_all},
    {"grow", grow},
    {"lives", lives},
    {"visitors", visitors},
};

void die(const char *what)
{
    fprintf(stderr, "compare-work: %s\n", what);
    /* Not exit: its handlers would run on the heap that has just been found broken. */
    _Exit(3);
}

struct started {
    struct hand hand;
    void (*work)(struct hand *);
    pthread_t thread;
};

static void *begin(void *arg)
{
    struct started *s = arg;
    s->work(&s->hand);
    return NULL;
}

void in_threads(struct job *job, void (*work)(struct hand *))
{
    /* Not from malloc: these are written to all the time, and whether they share a cache line
     * must not depend on the allocator. */
    static _Alignas(128) struct { _Alignas(128) struct started s; } all[64];
    if (job->threads < 1 || job->threads > 64)
        die("1 to 64 threads");
    for (int i = 0; i < job->threads; i++) {
        struct started *s = &all[i].s;
        s->hand = (struct hand){job, i, {(uint64_t)i + 1}, 0, 0};
        s->work = work;
        if (pthread_create(&s->thread, NULL, begin, s))
            die("no thread");
    }
    for (int i = 0; i < job->threads; i++) {
        pthread_join(all[i].s.thread, NULL);
        job->check += all[i].s.hand.check;
        job->operations += all[i].s.hand.operations;
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    struct job job = {0};
    void (*run)(struct job *) = NULL;
    for (size_t i = 0; argc == 4 && i < sizeof workloads / sizeof *workloads; i++)
        if (!strcmp(argv[1], workloads[i].name))
            run = workloads[i].run;
    if (!run) {
        fprintf(stderr, "usage: compare-work WORKLOAD THREADS PERCENT\n");
        return 2;
    }
    job.threads = atoi(argv[2]);
    job.percent = strtoul(argv[3], NULL, 10);

    Dl_info info;
    void *found = dlsym(RTLD_DEFAULT, "malloc");
    printf("malloc %s\n", found && dladdr(found, &info) ? info.dli_fname : "?");
    double start = now();
    run(&job);
    printf("seconds %.6f\n", now() - start);
    printf("check %llu of %llu\n", (unsigned long long)job.check, (unsigned long long)job.operations);
    return 0;
}
