/* Programs built against jemalloc mix its own calls with malloc and free: Debian's redis-server
 * calls nallocx, mallctl and malloc_stats_print. Those three must be there; whatever more of
 * jemalloc's interface is exported must work on the same blocks as malloc. */
#include "check.h"

#include <malloc.h>

#define WEAK __attribute__((weak))
WEAK void *mallocx(size_t size, int flags);
WEAK void *rallocx(void *p, size_t size, int flags);
WEAK size_t xallocx(void *p, size_t size, size_t extra, int flags);
WEAK size_t sallocx(const void *p, int flags);
WEAK void dallocx(void *p, int flags);
WEAK void sdallocx(void *p, size_t size, int flags);
WEAK size_t nallocx(size_t size, int flags);
WEAK int mallctl(const char *name, void *old, size_t *old_size, void *new_value, size_t new_size);
WEAK void malloc_stats_print(void (*write)(void *, const char *), void *opaque, const char *options);

#define MALLOCX_LG_ALIGN(lg) ((int)(lg))
#define MALLOCX_ZERO ((int)0x40)

static size_t written;

static void count_text(void *opaque, const char *text)
{
	CHECK(opaque == &written);
	written += strlen(text);
}

static size_t allocated(void)
{
	uint64_t epoch = 1;
	size_t size = sizeof epoch, value = 0;
	CHECK_EQ(mallctl("epoch", &epoch, &size, &epoch, sizeof epoch), 0);
	size = sizeof value;
	CHECK_EQ(mallctl("stats.allocated", &value, &size, NULL, 0), 0);
	CHECK_EQ(size, sizeof value);
	return value;
}

static void required(void)
{
	if (!under_test() && (!nallocx || !mallctl || !malloc_stats_print))
		NOT_APPLICABLE("has not the three of jemalloc's names that redis calls");
	CHECK(nallocx && mallctl && malloc_stats_print);
	/* What redis does: ask for the real size before it allocates. */
	for (size_t n = 1; n < 3 * MIB; n = n * 5 / 4 + 1) {
		void *p = malloc(n);
		CHECK_GE(nallocx(n, 0), n);
		/* Blocks that may live below come in coarser sizes than those that cannot. */
		CHECK_LE(nallocx(n, 0), malloc_usable_size(p));
		free(p);
	}
	CHECK_EQ(nallocx((size_t)PTRDIFF_MAX + 1, 0), 0);
	for (int lg = 4; lg <= 16; lg++) {
		void *p = memalign((size_t)1 << lg, 100);
		CHECK_GE(nallocx(100, MALLOCX_LG_ALIGN(lg)), 100);
		free(p);
	}

	const char *version = NULL;
	size_t size = sizeof version;
	CHECK_EQ(mallctl("version", &version, &size, NULL, 0), 0);
	CHECK(version && version[0]);
	size_t value = 0, before = allocated();
	char *block = malloc(8 * MIB);
	CHECK_GE(allocated(), before + 8 * MIB - 64 * KIB);
	free(block);
	CHECK_LE(allocated(), before + MIB);
	/* What redis reads for INFO memory. */
	static const char *const read_by_redis[] = {"stats.resident", "stats.active", "stats.allocated"};
	block = malloc(100000);
	memset(block, 1, 100000);
	for (size_t i = 0; i < 3; i++) {
		size = sizeof value;
		CHECK_EQ(mallctl(read_by_redis[i], &value, &size, NULL, 0), 0);
		CHECK_GE(value, 100000);
	}
	free(block);
	CHECK_EQ(mallctl("no.such.name", &value, &size, NULL, 0), ENOENT);
	/* Redis's DEBUG MALLCTL-STR reads first and believes what it gets, unless it is EPERM: a
	 * success without a value had it print a wild pointer. */
	const char *text = NULL;
	size = sizeof text;
	CHECK_EQ(mallctl("thread.tcache.flush", &text, &size, NULL, 0), EPERM);
	CHECK_EQ(mallctl("thread.tcache.flush", NULL, NULL, NULL, 0), 0);
	size = sizeof text;
	CHECK_EQ(mallctl("arena.0.purge", &text, &size, NULL, 0), EPERM);
	CHECK_EQ(mallctl("arena.0.purge", NULL, NULL, NULL, 0), 0);
	/* What is only read refuses to be written. */
	CHECK_EQ(mallctl("stats.allocated", NULL, NULL, &value, sizeof value), EPERM);
	CHECK_EQ(mallctl("version", NULL, NULL, &text, sizeof text), EPERM);
	CHECK_EQ(mallctl("epoch", NULL, NULL, &value, 1), EINVAL);

	malloc_stats_print(count_text, &written, NULL);
	CHECK_GE(written, 20);
}

static void extended(void)
{
	if (!mallocx || !dallocx || !sdallocx)
		return;
	for (size_t n = 1; n < 2 * MIB; n = n * 3 + 5) {
		char *p = mallocx(n, 0);
		CHECK_ALIGNED(p, 16);
		memset(p, 1, n);
		free(p);
		p = mallocx(n, MALLOCX_ZERO);
		CHECK(p && all_zero(p, n));
		dallocx(p, 0);
		p = mallocx(n, MALLOCX_LG_ALIGN(12));
		CHECK_ALIGNED(p, 4096);
		sdallocx(p, n, MALLOCX_LG_ALIGN(12));
		p = malloc(n);
		fill(p, n, n);
		if (rallocx) {
			p = rallocx(p, n * 2, 0);
			CHECK_FILLED(p, n, n);
		}
		if (sallocx)
			CHECK_EQ(sallocx(p, 0), malloc_usable_size(p));
		if (xallocx)
			CHECK_GE(xallocx(p, n, 0, 0), n);
		dallocx(p, 0);
		sdallocx(malloc(n), n, 0);
	}
}

int main(void)
{
	required();
	extended();
	return 0;
}
