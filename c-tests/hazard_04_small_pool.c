/* A small pool, emptied and filled again, holds as much as the first time: its account neither
 * loses bytes nor gains them. Driver: policy=cold;strict=1 with limit:16M. */
#include "check.h"

#define MOST 70000

static void *p[MOST];

static size_t fill_pool(size_t size)
{
	size_t n = 0;
	/* Twice the pool's limit ends it too, for an allocator that has no limit. */
	while (n * size < 32 * MIB && (p[n] = malloc(size))) {
		*(size_t *)p[n] = n;
		n++;
	}
	if (n * size < 32 * MIB)
		CHECK_EQ(errno, ENOMEM);
	return n;
}

static void empty_pool(size_t n, size_t step)
{
	/* In another order than it was filled, so that no free list happens to fit. */
	for (size_t first = 0; first < step; first++)
		for (size_t i = first; i < n; i += step) {
			CHECK_EQ(*(size_t *)p[i], i);
			free(p[i]);
		}
}

int main(void)
{
	static const size_t sizes[] = {512, 4096, 10000, 100000, 1000000, 5 * 1000 * 1000};
	size_t first[6];
	for (int round = 0; round < 12; round++)
		for (size_t s = 0; s < 6; s++) {
			size_t n = fill_pool(sizes[s]);
			if (round == 0) {
				first[s] = n;
				if (under_test()) {
					/* At least half of 16 MiB, and never more than all of it. */
					CHECK_GE(n * sizes[s], 8 * MIB);
					CHECK_LE(n * sizes[s], 16 * MIB);
				}
			} else if (n * 100 < first[s] * 97) {
				FAIL("round %d: %zu blocks of %zu, %zu in the first round", round, n,
				     sizes[s], first[s]);
			}
			empty_pool(n, 1 + (size_t)round % 7);
		}
	return 0;
}
