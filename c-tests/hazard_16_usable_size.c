/* Programs use all that malloc_usable_size promises. It never changes while the block lives, every
 * byte of it belongs to the block alone, and realloc copies all of it, not what was asked for. */
#include "check.h"

#include <malloc.h>

static void one_size(size_t n)
{
	enum { COUNT = 7 };
	void *p[COUNT];
	size_t usable[COUNT];
	for (int i = 0; i < COUNT; i++) {
		p[i] = i % 3 == 0 ? malloc(n) : i % 3 == 1 ? calloc(1, n) : memalign(64, n);
		CHECK(p[i]);
		usable[i] = malloc_usable_size(p[i]);
		CHECK_GE(usable[i], n);
		fill(p[i], usable[i], (uint64_t)i + n);
	}
	for (int i = 0; i < COUNT; i++) {
		CHECK_FILLED(p[i], usable[i], (uint64_t)i + n);
		CHECK_EQ(malloc_usable_size(p[i]), usable[i]);
	}
	for (int i = 0; i < COUNT; i++) {
		p[i] = realloc(p[i], usable[i] + 1 + (size_t)i * 1000);
		CHECK(p[i]);
		CHECK_FILLED(p[i], usable[i], (uint64_t)i + n);
	}
	for (int i = 0; i < COUNT; i++)
		free(p[i]);
}

/* Waste is at most an eighth above 128 bytes; blocks that may live in a cold tier are whole write units of
 * 256 bytes on top of that. */
static void bounded_waste(void)
{
	for (size_t n = 129; n <= 512 * KIB; n += n / 40 + 1) {
		void *p = malloc(n);
		size_t usable = malloc_usable_size(p);
		size_t least = getenv("TIERHEAP") && strstr(getenv("TIERHEAP"), "cold=") ? (n + 255) / 256 * 256 : n;
		if (usable * 7 > least * 8 + 16 * 7)
			FAIL("malloc(%zu) takes a block of %zu", n, usable);
		free(p);
	}
}

int main(void)
{
	CHECK_EQ(malloc_usable_size(NULL), 0);
	/* That a block of size 0 is one is row 1. */
	for (size_t n = under_test() ? 0 : 1; n < 1100; n += 3)
		one_size(n);
	for (size_t n = 1100; n < 4 * MIB; n = n * 6 / 5 + 1)
		one_size(n);
	if (under_test())
		bounded_waste();
	return 0;
}
