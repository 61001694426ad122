/* The allocation calls in every kind: what they return, errno, alignment, contents, overflow. */
#include "check.h"
#include "tierheap.h"

static void sizes(tierheap_kind_t *kind)
{
	for (size_t n = 0; n < 6 * MIB; n = n * 5 / 4 + 1) {
		char *p = tierheap_malloc(kind, n), *q = tierheap_calloc(kind, n, 1);
		CHECK_ALIGNED(p, 16);
		CHECK_ALIGNED(q, 16);
		CHECK(p != q);
		CHECK(all_zero(q, n));
		CHECK_GE(tierheap_usable_size(p), n);
		fill(p, tierheap_usable_size(p), n);
		fill(q, tierheap_usable_size(q), n + 1);
		CHECK_FILLED(p, tierheap_usable_size(p), n);
		char *r = tierheap_realloc(kind, p, n + n / 3 + 40);
		CHECK_FILLED(r, n, n);
		CHECK(tierheap_kind_of(r) == tierheap_kind_of(q));
		r = tierheap_realloc(kind, r, n / 2 + 1);
		CHECK_FILLED(r, n / 2, n);
		CHECK_FILLED(q, n, n + 1);
		tierheap_free(r);
		tierheap_free(q);
	}
}

static void aligned(tierheap_kind_t *kind)
{
	for (size_t a = 8; a <= 2 * MIB; a *= 2)
		for (size_t n = 1; n < 400000; n = n * 11 + 3) {
			char *p = tierheap_aligned_alloc(kind, a, n);
			void *q = NULL;
			CHECK_ALIGNED(p, a);
			CHECK_EQ(tierheap_posix_memalign(kind, &q, a, n), 0);
			CHECK_ALIGNED(q, a);
			fill(p, n, a);
			fill(q, n, a + n);
			CHECK_FILLED(p, n, a);
			p = tierheap_realloc(kind, p, n * 2);
			CHECK_FILLED(p, n, a);
			CHECK_FILLED(q, n, a + n);
			tierheap_free(p);
			tierheap_free(q);
		}
	static const size_t bad[] = {0, 1, 2, 4, 7, 24, 100, SIZE_MAX};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		void *p = &p;
		errno = 77;
		CHECK_EQ(tierheap_posix_memalign(kind, &p, bad[i], 100), EINVAL);
		CHECK(p == &p);
		CHECK_EQ(errno, 77);
	}
	void *p = &p;
	CHECK_EQ(tierheap_posix_memalign(kind, &p, 64, PTRDIFF_MAX), ENOMEM);
	CHECK(p == &p);
}

static void too_large(tierheap_kind_t *kind)
{
	static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 4096, (size_t)PTRDIFF_MAX + 1, PTRDIFF_MAX, (size_t)1 << 60};
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		size_t n = sizes[i];
		CHECK_NULL(tierheap_malloc(kind, n), ENOMEM);
		CHECK_NULL(tierheap_calloc(kind, n, 1), ENOMEM);
		CHECK_NULL(tierheap_calloc(kind, 1, n), ENOMEM);
		CHECK_NULL(tierheap_realloc(kind, NULL, n), ENOMEM);
		CHECK_NULL(tierheap_aligned_alloc(kind, 64, n), ENOMEM);
		char *p = tierheap_malloc(kind, 200);
		fill(p, 200, n);
		CHECK_NULL(tierheap_realloc(kind, p, n), ENOMEM);
		CHECK_FILLED(p, 200, n);
		tierheap_free(p);
	}
	CHECK_NULL(tierheap_calloc(kind, SIZE_MAX / 2 + 2, 2), ENOMEM);
	CHECK_NULL(tierheap_calloc(kind, (size_t)1 << 32, (size_t)1 << 32), ENOMEM);
	CHECK_NULL(tierheap_calloc(kind, SIZE_MAX / 16 + 1, 16), ENOMEM);
}

static void corners(tierheap_kind_t *kind)
{
	errno = 4711;
	tierheap_free(NULL);
	void *p = tierheap_malloc(kind, 5 * MIB);
	tierheap_free(p);
	CHECK_EQ(errno, 4711);
	CHECK_EQ(tierheap_usable_size(NULL), 0);
	p = tierheap_realloc(kind, NULL, 100);
	CHECK(p);
	CHECK(!tierheap_realloc(kind, p, 0));
	void *a = tierheap_malloc(kind, 0), *b = tierheap_malloc(kind, 0);
	CHECK(a && b && a != b);
	tierheap_free(a);
	tierheap_free(b);
}

/* calloc from memory that others used before. */
static void zero(tierheap_kind_t *kind)
{
	for (size_t n = 16; n < 3 * MIB; n *= 3) {
		void *p[20];
		for (int round = 0; round < 2; round++) {
			for (int i = 0; i < 20; i++) {
				p[i] = round ? tierheap_calloc(kind, 1, n) : tierheap_malloc(kind, n);
				CHECK(p[i]);
				if (round)
					CHECK(all_zero(p[i], n));
				memset(p[i], 0xa5, tierheap_usable_size(p[i]));
			}
			for (int i = 0; i < 20; i++)
				tierheap_free(p[i]);
		}
	}
}

int main(int argc, char **argv)
{
	CHECK(argc > 1);
	char spec[4200];
	tierheap_kind_t *kinds[6] = {NULL, tierheap_kind_dram(), tierheap_kind_cold()};
	snprintf(spec, sizeof spec, "cold=file:%s;policy=cold", argv[1]);
	CHECK_EQ(tierheap_kind_create(spec, &kinds[3]), 0);
	snprintf(spec, sizeof spec, "cold=file:%s;policy=size;threshold=2K", argv[1]);
	CHECK_EQ(tierheap_kind_create(spec, &kinds[4]), 0);
	CHECK_EQ(tierheap_kind_create("cold=memfd;policy=ratio;ratio=1:1;strict=1", &kinds[5]), 0);
	for (int i = 0; i < 6; i++) {
		sizes(kinds[i]);
		aligned(kinds[i]);
		too_large(kinds[i]);
		corners(kinds[i]);
		zero(kinds[i]);
	}
	/* Blocks of every kind are freed by tierheap_free and grown in the kind they are in. */
	for (int i = 0; i < 6; i++) {
		char *p = tierheap_malloc(kinds[i], 3000);
		tierheap_kind_t *kind = tierheap_kind_of(p);
		fill(p, 3000, 5);
		p = tierheap_realloc(kind, p, 300000);
		CHECK_FILLED(p, 3000, 5);
		CHECK(tierheap_kind_of(p) == kind);
		tierheap_free(p);
	}
	return 0;
}
