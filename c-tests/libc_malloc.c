/* malloc and free as glibc documents them: alignment, errno, what is too large. */
#include "check.h"

#include <malloc.h>

/* Every size up to a page is aligned for max_align_t, also the sizes below 16. */
static void alignment_of_small_sizes(void)
{
	static void *blocks[4097];
	for (size_t n = 1; n <= 4096; n++) {
		blocks[n] = malloc(n);
		CHECK_ALIGNED(blocks[n], 16);
		CHECK_GE(malloc_usable_size(blocks[n]), n);
		fill(blocks[n], n, n);
	}
	for (size_t n = 1; n <= 4096; n++) {
		CHECK_FILLED(blocks[n], n, n);
		free(blocks[n]);
	}
	for (size_t n = 1; n <= 4096; n += 7) {
		void *p = calloc(1, n);
		CHECK_ALIGNED(p, 16);
		p = realloc(p, n * 3 + 1);
		CHECK_ALIGNED(p, 16);
		free(p);
	}
}

static void large_sizes(void)
{
	for (size_t n = 4096; n <= 64 * MIB; n = n * 5 / 4 + 1) {
		char *p = malloc(n);
		CHECK_ALIGNED(p, 16);
		p[0] = 1;
		p[n / 2] = 2;
		p[n - 1] = 3;
		CHECK(p[0] == 1 && p[n / 2] == 2 && p[n - 1] == 3);
		free(p);
	}
}

/* glibc 2.30 and later refuse anything above PTRDIFF_MAX; what no address space holds fails too. */
static void too_large(void)
{
	static const size_t sizes[] = {
		SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - 15, SIZE_MAX - 4095, SIZE_MAX - 65535,
		SIZE_MAX - 2 * MIB, (size_t)PTRDIFF_MAX + 1, PTRDIFF_MAX, PTRDIFF_MAX - 1,
		PTRDIFF_MAX - 4096, PTRDIFF_MAX - 2 * MIB, (size_t)1 << 62, (size_t)1 << 48,
	};
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		size_t n = sizes[i];
		CHECK_NULL(malloc(n), ENOMEM);
		CHECK_NULL(calloc(1, n), ENOMEM);
		CHECK_NULL(calloc(n, 1), ENOMEM);
		CHECK_NULL(realloc(NULL, n), ENOMEM);
		CHECK_NULL(reallocarray(NULL, n, 1), ENOMEM);
		CHECK_NULL(memalign(64, n), ENOMEM);
		CHECK_NULL(aligned_alloc(64, n), ENOMEM);
		CHECK_NULL(valloc(n), ENOMEM);
		CHECK_NULL(pvalloc(n), ENOMEM);
		void *p = &p;
		CHECK_EQ(posix_memalign(&p, 64, n), ENOMEM);
		CHECK(p == &p);
		void *kept = malloc(100);
		fill(kept, 100, n);
		CHECK_NULL(realloc(kept, n), ENOMEM);
		CHECK_FILLED(kept, 100, n);
		free(kept);
	}
}

/* Not all at the same place of a page: a copy between two such blocks reads what processors take for
 * just written, and takes half as long again. */
static void longer_ones_begin_anywhere(void)
{
	enum { COUNT = 60 };
	char *p[COUNT], seen[4096] = {0};
	int places = 0;
	for (size_t i = 0; i < COUNT; i++) {
		p[i] = malloc(102400);
		CHECK_ALIGNED(p[i], 16);
		fill(p[i], 102400, i);
		char *at = &seen[(uintptr_t)p[i] % 4096];
		places += !*at;
		*at = 1;
	}
	if (under_test())
		CHECK_GE(places, 5);
	for (size_t i = 0; i < COUNT; i++) {
		CHECK_FILLED(p[i], 102400, i);
		free(p[i]);
	}
}

static void free_keeps_errno(void)
{
	static const size_t sizes[] = {0, 1, 100, 5000, 100000, 1 * MIB, 40 * MIB};
	errno = 4711;
	free(NULL);
	CHECK_EQ(errno, 4711);
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
		for (int round = 0; round < 3; round++) {
			char *p = malloc(sizes[i]);
			CHECK(p);
			if (sizes[i])
				memset(p, 1, sizes[i]);
			errno = 4711;
			free(p);
			CHECK_EQ(errno, 4711);
		}
}

int main(void)
{
	alignment_of_small_sizes();
	large_sizes();
	longer_ones_begin_anywhere();
	too_large();
	free_keeps_errno();
	return 0;
}
