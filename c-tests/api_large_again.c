/* Large blocks that come and go. The thread that freed one may get it back at once; nobody else may be the
 * poorer for it: a limit has room for whoever asks next, on whichever thread; statistics do not count what
 * is free; memory goes back to the system; a child and its parent have what they wrote; a kind that
 * is destroyed takes all of its blocks with it. */
#include "check.h"
#include "tierheap.h"

#include <pthread.h>

static tierheap_kind_t *limited;

static struct tierheap_stats get(void)
{
	struct tierheap_stats s = {.size = sizeof s};
	CHECK_EQ(tierheap_stats(&s), 0);
	return s;
}

static void come_and_go(tierheap_kind_t *kind, uint64_t seed, int rounds)
{
	unsigned char *p[6] = {0};
	size_t n[6] = {0};
	for (int round = 0; round < rounds; round++) {
		size_t i = rnd(&seed) % 6;
		if (p[i]) {
			CHECK_FILLED(p[i], 4096, i);
			CHECK_FILLED(p[i] + n[i] - 4096, 4096, i + 77);
			tierheap_free(p[i]);
		}
		n[i] = 520 * KIB + rnd(&seed) % (4 * MIB);
		if (round % 5 == 0) {
			p[i] = tierheap_calloc(kind, 1, n[i]);
			CHECK(p[i]);
			for (size_t at = 0; at < n[i]; at += 509)
				CHECK_EQ(p[i][at], 0);
		} else {
			p[i] = tierheap_malloc(kind, n[i]);
			CHECK(p[i]);
		}
		CHECK_GE(tierheap_usable_size(p[i]), n[i]);
		for (size_t k = 0; k < 6; k++)
			CHECK(k == i || !p[k] || p[k] + n[k] <= p[i] || p[i] + n[i] <= p[k]);
		memset(p[i], 0xee, n[i]);
		fill(p[i], 4096, i);
		fill(p[i] + n[i] - 4096, 4096, i + 77);
	}
	for (int i = 0; i < 6; i++)
		tierheap_free(p[i]);
}

static void *elsewhere(void *seed)
{
	for (int kind = 0; kind < 2; kind++)
		come_and_go(kind ? tierheap_kind_cold() : NULL, (uintptr_t)seed, 150);
	return NULL;
}

static void *all_of_it(void *size)
{
	void *p = tierheap_malloc(limited, (size_t)size);
	CHECK(p);
	memset(p, 1, (size_t)size);
	tierheap_free(p);
	return NULL;
}

/* What one thread has freed has room for another's block, though it kept it for itself. */
static void limit_is_for_all(void)
{
	CHECK_EQ(tierheap_kind_create("cold=memfd,limit:64M;policy=cold;strict=1", &limited), 0);
	for (int round = 0; round < 20; round++) {
		void *p = tierheap_malloc(limited, 30 * MIB);
		CHECK(p);
		CHECK_NULL(tierheap_malloc(limited, 40 * MIB), ENOMEM);
		tierheap_free(p);
		pthread_t t;
		size_t size = (size_t)(40 + round) * MIB;
		CHECK_EQ(pthread_create(&t, NULL, all_of_it, (void *)size), 0);
		CHECK_EQ(pthread_join(t, NULL), 0);
		all_of_it((void *)(size + MIB));
	}
	/* Two blocks on the shelf, then the kind is gone, and its number is another's. */
	void *a = tierheap_malloc(limited, 10 * MIB), *b = tierheap_malloc(limited, 20 * MIB);
	CHECK(a && b);
	tierheap_free(a);
	tierheap_free(b);
	CHECK_EQ(tierheap_kind_destroy(limited), 0);
	CHECK_EQ(tierheap_kind_create("cold=memfd,limit:32M;policy=cold;strict=1", &limited), 0);
	for (int i = 0; i < 3; i++)
		all_of_it((void *)(20 * MIB));
	CHECK_EQ(tierheap_kind_destroy(limited), 0);
}

static void nothing_is_counted(void)
{
	void *p = tierheap_malloc(NULL, 8 * MIB);
	CHECK(p);
	CHECK_GE(get().tier[0].asked, 8 * MIB);
	tierheap_free(p);
	CHECK_LE(get().tier[0].asked, MIB);
	CHECK_EQ(tierheap_usable_size(p), 0);
	/* Its successor is as long as it was asked to be, give or take an eighth. */
	void *q = tierheap_malloc(NULL, 3 * MIB);
	CHECK(q);
	CHECK_LE(tierheap_usable_size(q), 3 * MIB + 3 * MIB / 8);
	tierheap_free(q);
}

/* Each as long as none before it: what was kept makes way, and its memory serves the next. */
static void all_different(void)
{
	size_t before = get().tier[0].held;
	for (int round = 0; round < 3; round++)
		for (size_t n = 24 * MIB; n > MIB; n = n * 4 / 5) {
			unsigned char *p = tierheap_malloc(NULL, n);
			CHECK(p);
			p[0] = p[n - 1] = 1;
			CHECK_LE(get().tier[0].held, before + 28 * MIB);
			tierheap_free(p);
		}
}

static void forks(tierheap_kind_t *kind)
{
	unsigned char *kept = tierheap_malloc(kind, 2 * MIB), *freed = tierheap_malloc(kind, 2 * MIB);
	CHECK(kept && freed);
	fill(kept, 2 * MIB, 5);
	memset(freed, 1, 2 * MIB);
	tierheap_free(freed);
	pid_t pid = fork();
	CHECK(pid >= 0);
	for (uint64_t round = 0; round < 8; round++) {
		unsigned char *p = tierheap_malloc(kind, 2 * MIB);
		CHECK(p && p != kept);
		fill(p, 2 * MIB, round + (pid == 0) * 1000);
		usleep(2000);
		CHECK_FILLED(p, 2 * MIB, round + (pid == 0) * 1000);
		CHECK_FILLED(kept, 2 * MIB, 5);
		tierheap_free(p);
	}
	if (pid == 0)
		_exit(0);
	int status;
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	tierheap_free(kept);
}

/* Another thread works on, out of its own shelf; the one that left 60 MiB on its shelf sleeps. */
static void *busy(void *stop)
{
	while (!__atomic_load_n((int *)stop, __ATOMIC_RELAXED)) {
		void *p = tierheap_malloc(NULL, 700 * KIB);
		CHECK(p);
		tierheap_free(p);
		usleep(1000);
	}
	return NULL;
}

static void goes_back(void)
{
	int stop = 0;
	pthread_t t;
	CHECK_EQ(pthread_create(&t, NULL, busy, &stop), 0);
	void *p[3];
	for (int i = 0; i < 3; i++) {
		p[i] = tierheap_malloc(NULL, 20 * MIB);
		CHECK(p[i]);
		memset(p[i], 1, 20 * MIB);
	}
	CHECK_GE(get().tier[0].held, 60 * MIB);
	for (int i = 0; i < 3; i++)
		tierheap_free(p[i]);
	/* A second or two; a machine that stands still for long may take longer. */
	for (int waited = 0; get().tier[0].held > 20 * MIB; waited++) {
		CHECK_LE(waited, 300);
		usleep(100000);
	}
	stop = 1;
	CHECK_EQ(pthread_join(t, NULL), 0);
}

int main(void)
{
	all_different();
	nothing_is_counted();
	limit_is_for_all();
	pthread_t t[3];
	for (uintptr_t i = 0; i < 3; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, elsewhere, (void *)(i + 1)), 0);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(pthread_join(t[i], NULL), 0);
	forks(NULL);
	forks(tierheap_kind_cold());
	goes_back();
	return 0;
}
