/* tierheap_tier_of, tierheap_kind_of and tierheap_usable_size answer about any address, also about those
 * that are nobody's or another allocator's, and never crash. */
#include "check.h"
#include "tierheap.h"

#include <sys/mman.h>

static int global;

static void nobody(const void *p)
{
	CHECK_EQ(tierheap_tier_of(p), 0);
	CHECK(!tierheap_kind_of(p));
}

int main(void)
{
	int local = 0;
	void *mapped = mmap(NULL, 4 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(mapped != MAP_FAILED);
	/* Before the heap's first block. */
	nobody(NULL);
	nobody(&local);
	tierheap_kind_t *cold = tierheap_kind_cold(), *dram = tierheap_kind_dram();
	for (size_t n = 1; n < 10 * MIB; n = n * 3 + 1) {
		char *c = tierheap_malloc(cold, n), *d = tierheap_malloc(dram, n);
		CHECK(c && d);
		/* Any address of a block, not only its first. */
		for (size_t at = 0; at < n; at = at * 2 + 1) {
			CHECK_EQ(tierheap_tier_of(c + at), 2);
			CHECK_EQ(tierheap_tier_of(d + at), 1);
		}
		CHECK(tierheap_kind_of(c) == cold);
		CHECK(tierheap_kind_of(d) == dram);
		CHECK_GE(tierheap_usable_size(c), n);
		tierheap_free(c);
		tierheap_free(d);
	}
	nobody(NULL);
	nobody(&local);
	nobody(&global);
	nobody((const void *)(uintptr_t)main);
	nobody(mapped);
	nobody((char *)mapped + 2 * MIB);
	nobody("a string");
	nobody((void *)1);
	nobody((void *)(uintptr_t)0x7fffffffffff);
	nobody((void *)(uintptr_t)0x800000000000);
	nobody((void *)~(uintptr_t)0);
	nobody((void *)((uintptr_t)1 << 63));
	void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
	void *(*other)(size_t);
	*(void **)&other = dlsym(libc, "malloc");
	void *foreign = other(1000);
	nobody(foreign);
	uint64_t seed = 7;
	for (int i = 0; i < 100000; i++) {
		const void *anywhere = (const void *)(uintptr_t)(rnd(&seed) >> (rnd(&seed) % 40));
		int tier = tierheap_tier_of(anywhere);
		CHECK(tier >= 0 && tier <= 9);
	}
	return 0;
}
