/* memalign, aligned_alloc, posix_memalign, valloc and pvalloc over every alignment, and the values
 * that are none: results and errno as glibc gives them. */
#include "check.h"

#include <malloc.h>

static void *by_posix(size_t alignment, size_t size)
{
	void *p = NULL;
	int error = posix_memalign(&p, alignment, size);
	if (error)
		FAIL("posix_memalign(%zu, %zu) gave %d", alignment, size, error);
	return p;
}

static void one(size_t alignment, size_t size)
{
	void *p[4] = {memalign(alignment, size), aligned_alloc(alignment, size),
		      by_posix(alignment, size), memalign(alignment, size)};
	for (int i = 0; i < 4; i++) {
		CHECK_ALIGNED(p[i], alignment);
		CHECK_ALIGNED(p[i], 16);
		CHECK_GE(malloc_usable_size(p[i]), size);
		fill(p[i], size, (uintptr_t)p[i]);
	}
	for (int i = 0; i < 4; i++) {
		CHECK_FILLED(p[i], size, (uintptr_t)p[i]);
		free(p[i]);
	}
}

static void every_alignment(void)
{
	static const size_t sizes[] = {0, 1, 15, 16, 17, 64, 100, 1000, 4096, 5000, 65536, 100000, 3 * MIB};
	for (size_t a = 8; a <= 4 * MIB; a *= 2)
		for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
			if (sizes[i] || under_test()) /* that a block of size 0 is one is row 1 */
				one(a, sizes[i]);
}

/* Many at once: aligned blocks between ordinary ones must not overlap, nor take a free one of theirs
 * that happens to lie elsewhere. */
static void mixed(unsigned alignments, size_t most)
{
	enum { COUNT = 2000 };
	static void *p[COUNT];
	static size_t n[COUNT];
	uint64_t seed = 12345;
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < COUNT; i++) {
			size_t a = (size_t)8 << rnd(&seed) % alignments;
			n[i] = rnd(&seed) % most + !under_test();
			p[i] = i % 2 ? memalign(a, n[i]) : malloc(n[i]);
			CHECK(p[i]);
			if (i % 2)
				CHECK_ALIGNED(p[i], a);
			fill(p[i], n[i], i);
		}
		for (size_t i = 0; i < COUNT; i++) {
			size_t k = (i * 7 + (size_t)round) % COUNT;
			CHECK_FILLED(p[k], n[k], k);
			free(p[k]);
		}
	}
}

static void bad_values(void)
{
	static const size_t bad[] = {0, 1, 2, 4, 7, 9, 12, 24, 48, 4095, 4097, SIZE_MAX,
				     ((size_t)1 << 63) + 8};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		void *p = &p;
		errno = 77;
		CHECK_EQ(posix_memalign(&p, bad[i], 100), EINVAL);
		CHECK(p == &p);
		CHECK_EQ(errno, 77);
	}
	/* memalign rounds up to a power of two, and takes 0 and 1 for none. */
	static const size_t rounded[][2] = {{0, 16}, {1, 16}, {2, 16}, {4, 16}, {24, 32},
					    {48, 64}, {100, 128}, {4097, 8192}};
	for (size_t i = 0; i < sizeof rounded / sizeof rounded[0]; i++) {
		char *p = memalign(rounded[i][0], 1000);
		CHECK_ALIGNED(p, rounded[i][1]);
		memset(p, 1, 1000);
		free(p);
		/* aligned_alloc does the same up to glibc 2.37 and says EINVAL from 2.38 on. */
		errno = 0;
		p = aligned_alloc(rounded[i][0], 1000);
		if (p)
			CHECK_ALIGNED(p, rounded[i][1]);
		else
			CHECK_EQ(errno, EINVAL);
		free(p);
	}
	CHECK_NULL(memalign(((size_t)1 << 63) + 1, 100), EINVAL);
	CHECK_NULL(memalign(SIZE_MAX, 100), EINVAL);
	CHECK_NULL(aligned_alloc(SIZE_MAX, 100), EINVAL);
}

static void huge(void)
{
	for (size_t a = 8 * MIB; a <= 64 * MIB; a *= 2) {
		char *p = memalign(a, 100);
		CHECK_ALIGNED(p, a);
		fill(p, 100, a);
		char *q = memalign(a, 5 * MIB);
		CHECK_ALIGNED(q, a);
		fill(q, 5 * MIB, a + 1);
		CHECK_FILLED(p, 100, a);
		free(p);
		CHECK_FILLED(q, 5 * MIB, a + 1);
		free(q);
	}
	errno = 0;
	char *p = memalign(GIB, 100);
	if (p) {
		CHECK_ALIGNED(p, GIB);
		p[99] = 1;
	} else {
		CHECK_EQ(errno, ENOMEM);
	}
	free(p);
	CHECK_NULL(memalign((size_t)1 << 62, 100), ENOMEM);
	CHECK_NULL(memalign((size_t)1 << 63, 100), ENOMEM);
	CHECK_NULL(aligned_alloc((size_t)1 << 50, 100), ENOMEM);
	void *q = NULL;
	CHECK_EQ(posix_memalign(&q, (size_t)1 << 62, 100), ENOMEM);
}

static void whole_pages(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	for (size_t n = under_test() ? 0 : 1; n < 20000; n += 333) {
		char *p = valloc(n), *q = pvalloc(n);
		CHECK_ALIGNED(p, page);
		CHECK_ALIGNED(q, page);
		size_t whole = (n + page - 1) / page * page;
		CHECK_GE(malloc_usable_size(q), whole);
		fill(p, n, 1);
		fill(q, whole, 2);
		CHECK_FILLED(p, n, 1);
		CHECK_FILLED(q, whole, 2);
		free(p);
		free(q);
	}
}

int main(void)
{
	every_alignment();
	mixed(11, 3000);
	mixed(14, 80000);
	bad_values();
	huge();
	whole_pages();
	return 0;
}
