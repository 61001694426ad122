/* A multi-threaded stress that verifies every byte: random sizes through every entry point, blocks
 * passed between threads, each filled with a pattern from its address and size and checked when it is
 * freed, reallocated or found by a forked child. Threads die and are replaced all the time.
 * Arguments: seconds, threads, and "fork" to fork now and then. */
#include "check.h"

#include <malloc.h>
#include <pthread.h>

enum { SHARED = 512, OWN = 200, MOST_THREADS = 64 };

struct block {
	char *p;
	size_t n;
};

/* Blocks on their way from one thread to another. */
static struct {
	pthread_mutex_t lock;
	struct block block;
} shared[SHARED];

static double end;
static size_t operations;
static size_t live_bytes;

#define MOST_LIVE (192 * MIB)

static uint64_t seed_of(const struct block *b)
{
	return mix((uintptr_t)b->p) ^ b->n;
}

/* Large blocks are filled and verified at both ends and at each page, so that the time goes into the
 * allocator and not into the pattern. */
static void mark(const struct block *b, int check)
{
	size_t whole = 2048;
	if (b->n <= 2 * whole) {
		if (check)
			CHECK_FILLED(b->p, b->n, seed_of(b));
		else
			fill(b->p, b->n, seed_of(b));
		return;
	}
	if (check) {
		CHECK_FILLED(b->p, whole, seed_of(b));
		CHECK_FILLED(b->p + b->n - whole, whole, ~seed_of(b));
	} else {
		fill(b->p, whole, seed_of(b));
		fill(b->p + b->n - whole, whole, ~seed_of(b));
	}
	for (size_t at = whole; at + 8 <= b->n - whole; at += 4096) {
		uint64_t w = seed_of(b) + at;
		if (!check)
			memcpy(b->p + at, &w, 8);
		else if (memcmp(b->p + at, &w, 8))
			FAIL("%p of %zu bytes: wrong at byte %zu", (void *)b->p, b->n, at);
	}
}

static size_t random_size(uint64_t *seed)
{
	uint64_t r = rnd(seed) % 1000;
	if (r < 700)
		return rnd(seed) % 512 + 1;
	if (r < 930)
		return rnd(seed) % 16384 + 1;
	if (r < 990)
		return rnd(seed) % 200000 + 1;
	if (r < 999)
		return rnd(seed) % (2 * MIB) + 1;
	return rnd(seed) % (12 * MIB) + 1;
}

static void release(struct block *b)
{
	if (!b->p)
		return;
	mark(b, 1);
	CHECK_GE(malloc_usable_size(b->p), b->n);
	__atomic_sub_fetch(&live_bytes, b->n, __ATOMIC_RELAXED);
	free(b->p);
	b->p = NULL;
	b->n = 0;
}

static void obtain(struct block *b, uint64_t *seed)
{
	size_t n = random_size(seed), a = 16;
	if (__atomic_add_fetch(&live_bytes, n, __ATOMIC_RELAXED) > MOST_LIVE) {
		__atomic_sub_fetch(&live_bytes, n, __ATOMIC_RELAXED);
		return;
	}
	b->n = n;
	switch (rnd(seed) % 8) {
	case 0:
		b->p = calloc(1, n);
		CHECK(b->p);
		if (!all_zero(b->p, n < 70000 ? n : 70000))
			FAIL("calloc(%zu) at %p is not zero", n, (void *)b->p);
		break;
	case 1: {
		a = (size_t)8 << rnd(seed) % 12;
		void *p = NULL;
		CHECK_EQ(posix_memalign(&p, a, n), 0);
		b->p = p;
		break;
	}
	case 2:
		a = (size_t)16 << rnd(seed) % 9;
		b->p = memalign(a, n);
		break;
	default:
		b->p = malloc(n);
	}
	CHECK_ALIGNED(b->p, a);
	mark(b, 0);
}

/* The pattern depends on the address, so a block that moves is checked by its old one first. */
static void resize(struct block *b, uint64_t *seed)
{
	size_t n = random_size(seed), both = n < b->n ? n : b->n;
	if (!b->p)
		return;
	if (__atomic_add_fetch(&live_bytes, n, __ATOMIC_RELAXED) > MOST_LIVE) {
		__atomic_sub_fetch(&live_bytes, n, __ATOMIC_RELAXED);
		return;
	}
	mark(b, 1);
	uint64_t before = seed_of(b);
	size_t old = b->n;
	char *p = realloc(b->p, n);
	CHECK_ALIGNED(p, 16);
	__atomic_sub_fetch(&live_bytes, old, __ATOMIC_RELAXED);
	size_t front = old > 4096 ? 2048 : both;
	CHECK_FILLED(p, front < both ? front : both, before);
	for (size_t at = 2048; old > 4096 && at + 8 <= both && at + 8 <= old - 2048; at += 4096) {
		uint64_t w = before + at;
		if (memcmp(p + at, &w, 8))
			FAIL("realloc of %zu to %zu bytes, now %p: wrong at byte %zu", old, n, (void *)p, at);
	}
	b->p = p;
	b->n = n;
	mark(b, 0);
}

static void swap_with_shared(struct block *b, uint64_t *seed)
{
	size_t i = rnd(seed) % SHARED;
	if (pthread_mutex_trylock(&shared[i].lock))
		return;
	struct block other = shared[i].block;
	shared[i].block = *b;
	*b = other;
	pthread_mutex_unlock(&shared[i].lock);
}

/* One life of a thread: what it still has at the end it leaves in the shared slots or frees. */
static void *life(void *number)
{
	static __thread struct block own[OWN];
	uint64_t seed = mix((uintptr_t)number + 1) | 1;
	size_t steps = 2000 + rnd(&seed) % 20000, step;
	for (step = 0; step < steps && (step % 64 || now() < end); step++) {
		struct block *b = &own[rnd(&seed) % OWN];
		switch (rnd(&seed) % 8) {
		case 0:
		case 1:
			swap_with_shared(b, &seed);
			break;
		case 2:
			resize(b, &seed);
			break;
		default:
			release(b);
			obtain(b, &seed);
		}
	}
	__atomic_add_fetch(&operations, step, __ATOMIC_RELAXED);
	for (size_t i = 0; i < OWN; i++) {
		if (i % 2)
			swap_with_shared(&own[i], &seed);
		release(&own[i]);
	}
	return NULL;
}

static void child(void)
{
	alarm(60);
	for (size_t i = 0; i < SHARED; i++) {
		/* Held by a thread that the child does not have: on its way, unknown. */
		if (pthread_mutex_trylock(&shared[i].lock))
			continue;
		release(&shared[i].block);
	}
	uint64_t seed = 123;
	struct block b = {0};
	for (int i = 0; i < 500; i++) {
		obtain(&b, &seed);
		release(&b);
	}
	_exit(0);
}

int main(int argc, char **argv)
{
	CHECK(argc > 2);
	end = now() + atof(argv[1]);
	int threads = atoi(argv[2]), forks = argc > 3 && !strcmp(argv[3], "fork");
	CHECK(threads > 0 && threads <= MOST_THREADS);
	pthread_t t[MOST_THREADS];
	uintptr_t number = 0;
	for (size_t i = 0; i < SHARED; i++)
		pthread_mutex_init(&shared[i].lock, NULL);
	for (int i = 0; i < threads; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, life, (void *)number++), 0);
	for (int i = 0; now() < end; i = (i + 1) % threads) {
		CHECK_EQ(pthread_join(t[i], NULL), 0);
		CHECK_EQ(pthread_create(&t[i], NULL, life, (void *)number++), 0);
		if (forks && number % 16 == 0) {
			pid_t pid = fork();
			CHECK(pid >= 0);
			if (!pid)
				child();
			CHECK_CHILD(pid);
		}
	}
	for (int i = 0; i < threads; i++)
		CHECK_EQ(pthread_join(t[i], NULL), 0);
	for (size_t i = 0; i < SHARED; i++)
		release(&shared[i].block);
	CHECK_EQ(live_bytes, 0);
	CHECK(operations > 1000);
	malloc_trim(0);
	/* Everything was freed: what stays is the allocator's own. */
	if (under_test())
		CHECK_LE(held_bytes(), 64 * MIB);
	return 0;
}
