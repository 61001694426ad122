/* At a tier's limit a strict heap says NULL and ENOMEM; it is never killed, what it holds stays whole,
 * and what is freed can be had again. Driver: policy=cold;strict=1 with limit:32M. */
#include "check.h"

#include <malloc.h>

static void *p[200000];

/* What a file system adds for its own records of a file. */
#define RECORDS (64 * KIB)

static void fill_up(size_t n, size_t *count)
{
	size_t bytes = 0;
	*count = 0;
	while ((p[*count] = malloc(n))) {
		fill(p[*count], n, *count);
		bytes += malloc_usable_size(p[*count]);
		if (++*count * n > 40 * MIB)
			FAIL("%zu blocks of %zu within 32 MiB", *count, n);
	}
	CHECK_EQ(errno, ENOMEM);
	CHECK_LE(bytes, 32 * MIB);
	CHECK_GE(bytes, 22 * MIB);
}

int main(void)
{
	static const size_t sizes[] = {300, 4096, 60000, 700000, 3000000};
	for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
		size_t n = sizes[s], count;
		fill_up(n, &count);
		CHECK(in_slow_tier(p[0]));
		CHECK(in_slow_tier(p[count - 1]));
		CHECK_LE(unlinked_file_bytes(), 32 * MIB + RECORDS);
		/* Every entry point says the same. */
		CHECK_NULL(malloc(9 * MIB), ENOMEM);
		CHECK_NULL(calloc(9, MIB), ENOMEM);
		CHECK_NULL(realloc(NULL, 9 * MIB), ENOMEM);
		CHECK_NULL(memalign(4096, 9 * MIB), ENOMEM);
		CHECK_NULL(aligned_alloc(64, 9 * MIB), ENOMEM);
		CHECK_NULL(valloc(9 * MIB), ENOMEM);
		CHECK_NULL(pvalloc(9 * MIB), ENOMEM);
		void *q = &q;
		CHECK_EQ(posix_memalign(&q, 64, 9 * MIB), ENOMEM);
		CHECK(q == &q);
		/* A realloc that fails leaves the block as it was. */
		CHECK_NULL(realloc(p[count / 2], 30 * MIB), ENOMEM);
		for (size_t i = 0; i < count; i++)
			CHECK_FILLED(p[i], n, i);
		/* One freed, one to be had. */
		for (int again = 0; again < 20; again++) {
			size_t i = count * (size_t)again / 20;
			free(p[i]);
			p[i] = malloc(n);
			CHECK(p[i]);
			fill(p[i], n, i);
		}
		while (count) {
			count--;
			CHECK_FILLED(p[count], n, count);
			free(p[count]);
		}
	}
	return 0;
}
