/* A cold tier of 64 MiB serves gigabytes one after the other: freed space is used again, whatever
 * the sizes, the limit holds to the byte, and what is freed goes back to the file system.
 * Driver: all blocks in a tier with limit:64M; without one, memory at large must be used again. */
#include "check.h"

#include <malloc.h>
#include <unistd.h>

#define LIMIT (64 * MIB)

static void turn_over(size_t most, size_t in_use)
{
	enum { SLOTS = 512 };
	static void *p[SLOTS];
	static size_t n[SLOTS];
	size_t total = 0, served = 0;
	uint64_t seed = most + 1;
	while (served < 400 * MIB) {
		size_t i = rnd(&seed) % SLOTS;
		if (p[i])
			CHECK(*(size_t *)p[i] == n[i]);
		free(p[i]);
		total -= n[i];
		n[i] = 0;
		p[i] = NULL;
		size_t want = most / 4 + rnd(&seed) % (most * 3 / 4) + sizeof(size_t);
		if (total + want > in_use)
			continue;
		p[i] = malloc(want);
		if (!p[i])
			FAIL("malloc(%zu) failed with %zu of %zu bytes in use, %zu served", want,
			     total, LIMIT, served);
		*(size_t *)p[i] = want;
		n[i] = want;
		total += want;
		served += want;
	}
	for (size_t i = 0; i < SLOTS; i++) {
		free(p[i]);
		p[i] = NULL;
		n[i] = 0;
	}
}

int main(void)
{
	/* A third of the limit in use leaves room for slabs of other classes and for holes. */
	turn_over(2000, 2 * MIB);
	turn_over(40000, 16 * MIB);
	turn_over(300000, 24 * MIB);
	turn_over(3 * MIB, 24 * MIB);
	turn_over(12 * MIB, 24 * MIB);
	int in_file = unlinked_file_bytes() != 0;
	/* Of tierheap's tiers only nodes are no file. */
	CHECK(in_file || !under_test() || strstr(getenv("TIERHEAP"), "cold=node:"));
	/* 64 KiB: what a file system adds for its own records of a file. 24 MiB were in use at most. */
	CHECK_LE(in_file ? unlinked_file_bytes() : held_bytes() / 2, LIMIT + 64 * KIB);
	void *filler = malloc(40 * MIB);
	CHECK(filler);
	memset(filler, 7, 40 * MIB);
	if (under_test())
		CHECK_EQ(tier_of(filler), 2);
	free(filler);
	malloc_trim(0);
	/* Some give memory back by and by, when they are called. */
	for (double end = now() + 12; !under_test() && unlinked_file_bytes() > 16 * MIB && now() < end; usleep(10000))
		free(malloc(100));
	CHECK_LE(unlinked_file_bytes(), 16 * MIB);
	return 0;
}
