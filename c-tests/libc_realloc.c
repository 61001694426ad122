/* realloc and reallocarray: what glibc 2.36 returns in the corner cases, and contents kept over
 * chains of growth and shrinking that cross every size class and the border between tiers. */
#include "check.h"

#include <malloc.h>

static void corner_cases(void)
{
	char *p = realloc(NULL, 50);
	CHECK(p);
	fill(p, 50, 1);
	/* glibc frees the block and returns NULL. */
	CHECK(!realloc(p, 0));
	p = malloc(100);
	CHECK(!reallocarray(p, 0, 8));
	p = malloc(100);
	CHECK(!reallocarray(p, 8, 0));

	p = malloc(300);
	fill(p, 300, 2);
	CHECK_NULL(reallocarray(p, SIZE_MAX / 2 + 2, 2), ENOMEM);
	CHECK_NULL(reallocarray(p, SIZE_MAX, SIZE_MAX), ENOMEM);
	CHECK_NULL(reallocarray(p, (size_t)1 << 32, (size_t)1 << 32), ENOMEM);
	CHECK_NULL(reallocarray(NULL, (size_t)1 << 33, (size_t)1 << 31), ENOMEM);
	CHECK_NULL(realloc(p, (size_t)PTRDIFF_MAX + 1), ENOMEM);
	CHECK_FILLED(p, 300, 2);
	p = reallocarray(p, 300, 10);
	CHECK(p);
	CHECK_FILLED(p, 300, 2);
	free(p);
}

/* A block of its own size stays usable by realloc to the same size, in every class. */
static void same_size(void)
{
	for (size_t n = 1; n < 3 * MIB; n = n * 6 / 5 + 1) {
		void *p = malloc(n);
		fill(p, n, n);
		p = realloc(p, n);
		CHECK_FILLED(p, n, n);
		p = realloc(p, malloc_usable_size(p));
		CHECK_FILLED(p, n, n);
		free(p);
	}
}

/* Grows by half each time up to `most`, then shrinks again; the part that both have is kept. */
static void chain(size_t first, size_t most, int extra)
{
	size_t n = first;
	char *p = malloc(n), *between[64];
	size_t others = 0;
	fill(p, n, most);
	while (n < most) {
		size_t larger = n + n / 2 + 1;
		p = realloc(p, larger);
		CHECK_ALIGNED(p, 16);
		CHECK_FILLED(p, n, most);
		n = larger;
		fill(p, n, most);
		if (extra && others < 64) {
			/* A neighbour, so that the block cannot always grow where it is. */
			between[others] = malloc(n / 3 + 1);
			fill(between[others], n / 3 + 1, n);
			CHECK_FILLED(between[others], n / 3 + 1, n);
			others++;
		}
	}
	while (n > 1) {
		n = n * 3 / 5;
		p = realloc(p, n ? n : 1);
		CHECK(p);
		CHECK_FILLED(p, n, most);
	}
	free(p);
	while (others)
		free(between[--others]);
}

/* Many blocks that grow in turn, a few bytes at a time, as a string builder does. */
static void interleaved(void)
{
	enum { COUNT = 40 };
	char *p[COUNT] = {0};
	size_t n[COUNT] = {0};
	uint64_t seed = 88172645463325252ULL;
	for (int step = 0; step < 2500; step++) {
		int i = (int)(rnd(&seed) % COUNT);
		size_t to = rnd(&seed) % 4 ? n[i] + rnd(&seed) % 300 : rnd(&seed) % 200000;
		if (!to)
			to = 1;
		p[i] = realloc(p[i], to);
		CHECK(p[i]);
		size_t both = n[i] < to ? n[i] : to;
		if (both)
			CHECK_FILLED(p[i], both, (uint64_t)i);
		fill(p[i], to, (uint64_t)i);
		n[i] = to;
	}
	for (int i = 0; i < COUNT; i++) {
		if (p[i])
			CHECK_FILLED(p[i], n[i], (uint64_t)i);
		free(p[i]);
	}
}

/* realloc of blocks that came with an alignment keeps contents too. */
static void from_aligned(void)
{
	for (size_t a = 16; a <= 1 * MIB; a *= 4)
		for (size_t n = 1; n <= 100000; n = n * 7 + 3) {
			char *p = memalign(a, n);
			CHECK_ALIGNED(p, a);
			fill(p, n, a);
			p = realloc(p, n * 2 + 5);
			CHECK_FILLED(p, n, a);
			p = realloc(p, n);
			CHECK_FILLED(p, n, a);
			free(p);
		}
}

int main(void)
{
	corner_cases();
	same_size();
	chain(1, 16 * MIB, 0);
	chain(7, 6 * MIB, 1);
	chain(3000, 2 * MIB, 1);
	interleaved();
	from_aligned();
	return 0;
}
