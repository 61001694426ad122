/* Threads that come and go: each leaves a heap behind, and some leave blocks that live on. What they
 * leave must be found again by those who come after. Argument 1: how many threads. */
#include "check.h"

#include <pthread.h>

enum { SLOTS = 256 };
static void *slots[SLOTS];

static void *thread(void *number)
{
	uint64_t seed = 99 + (uintptr_t)number;
	char *p[12];
	size_t n[12];
	for (int i = 0; i < 12; i++) {
		n[i] = (size_t)1 << rnd(&seed) % 12;
		n[i] += rnd(&seed) % n[i];
		p[i] = malloc(n[i]);
		CHECK(p[i]);
		fill(p[i], n[i], (uint64_t)i);
	}
	for (int i = 0; i < 12; i++) {
		CHECK_FILLED(p[i], n[i], (uint64_t)i);
		if (i)
			free(p[i]);
	}
	/* One block in twelve outlives its thread, and is freed by another. */
	void *old = __atomic_exchange_n(&slots[rnd(&seed) % SLOTS], (void *)p[0], __ATOMIC_ACQ_REL);
	free(old);
	return NULL;
}

static void run(size_t threads)
{
	for (size_t done = 0; done < threads;) {
		pthread_t t[8];
		int at_once = 1 + (int)(done % 8);
		for (int i = 0; i < at_once; i++)
			CHECK_EQ(pthread_create(&t[i], NULL, thread, (void *)(done + (size_t)i)), 0);
		for (int i = 0; i < at_once; i++)
			CHECK_EQ(pthread_join(t[i], NULL), 0);
		done += (size_t)at_once;
	}
}

int main(int argc, char **argv)
{
	size_t threads = argc > 1 ? (size_t)atol(argv[1]) : 10000;
	run(threads / 10);
	size_t before = held_bytes(), mapped = mappings();
	run(threads);
	size_t after = held_bytes();
	if (after > before + 8 * MIB)
		FAIL("%zu bytes held after %zu threads, %zu after the next %zu", before, threads / 10,
		     after, threads);
	CHECK_LE(mappings(), mapped + 100);
	CHECK_LE(after, 128 * MIB);
	for (int i = 0; i < SLOTS; i++)
		free(slots[i]);
	return 0;
}
