/* What the heap knows of a block it keeps elsewhere: to allocate and free a cold block must not bring a page of it
 * into the process, from a device that may be slow to read and wears out by writes. Counted are the pages
 * that the kernel says are mapped in, of the mappings that the blocks lie in. */
#include "check.h"
#include "tierheap.h"

#include <inttypes.h>
#include <pthread.h>

enum { COUNT = 3000 };

struct pages {
	void *const *blocks;
	int ours;
	size_t resident, mappings;
};

static void line(const char *text, void *arg)
{
	struct pages *pages = arg;
	uintptr_t start, end;
	size_t kib;
	if (sscanf(text, "%" SCNxPTR "-%" SCNxPTR " ", &start, &end) == 2) {
		pages->ours = 0;
		for (size_t i = 0; i < COUNT && !pages->ours; i++) {
			uintptr_t p = (uintptr_t)pages->blocks[i];
			pages->ours = p >= start && p < end;
		}
		pages->mappings += (size_t)pages->ours;
	} else if (pages->ours && sscanf(text, "Rss: %zu kB", &kib) == 1) {
		pages->resident += kib * KIB;
	}
}

/* Of the memory that the blocks lie in. */
static size_t resident(void *const *blocks)
{
	struct pages pages = {.blocks = blocks};
	each_line("/proc/self/smaps", line, &pages);
	CHECK_GE(pages.mappings, 1);
	return pages.resident;
}

static void *get(tierheap_kind_t *kind, uint64_t *seed)
{
	size_t n = (size_t)16 << rnd(seed) % 17;
	n += rnd(seed) % n;
	void *p = NULL;
	if (rnd(seed) % 4)
		p = tierheap_malloc(kind, n);
	else
		CHECK_EQ(tierheap_posix_memalign(kind, &p, (size_t)8 << rnd(seed) % 11, n), 0);
	CHECK(p);
	CHECK_GE(tierheap_usable_size(p), n);
	CHECK(tierheap_kind_of(p) == kind);
	return p;
}

static void *blocks[COUNT];

static void *freer(void *unused)
{
	for (size_t i = 1; i < COUNT; i += 3)
		tierheap_free(blocks[i]);
	return unused;
}

static void untouched(const char *tier)
{
	char spec[5000];
	tierheap_kind_t *kind;
	uint64_t seed = 7;
	snprintf(spec, sizeof spec, "cold=%s;policy=cold;strict=1", tier);
	CHECK_EQ(tierheap_kind_create(spec, &kind), 0);
	for (size_t i = 0; i < COUNT; i++)
		blocks[i] = get(kind, &seed);
	for (int round = 0; round < 3; round++) {
		pthread_t t;
		CHECK_EQ(pthread_create(&t, NULL, freer, NULL), 0);
		CHECK_EQ(pthread_join(t, NULL), 0);
		for (size_t i = 1; i < COUNT; i += 3)
			blocks[i] = get(kind, &seed);
		for (size_t i = 2; i < COUNT; i += 3) {
			tierheap_free(blocks[i]);
			blocks[i] = get(kind, &seed);
		}
		/* What stays keeps its place: nothing is copied. */
		for (size_t i = 0; i < COUNT; i += 3) {
			void *same = tierheap_realloc(kind, blocks[i], tierheap_usable_size(blocks[i]));
			CHECK(same == blocks[i]);
		}
	}
	CHECK_EQ(resident(blocks), 0);
	/* A touch would have been seen. */
	*(volatile char *)blocks[COUNT / 2] = 1;
	CHECK_GE(resident(blocks), 4 * KIB);
	for (size_t i = 0; i < COUNT; i++)
		tierheap_free(blocks[i]);
	CHECK_EQ(tierheap_kind_destroy(kind), 0);
}

int main(int argc, char **argv)
{
	char file[4200];
	CHECK_EQ(argc, 2);
	snprintf(file, sizeof file, "file:%s", argv[1]);
	untouched("memfd");
	untouched(file);
	return 0;
}
