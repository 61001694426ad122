/* tierheap_configure: the whole string in force for the default kind, once, and a clear answer to a wrong
 * word or a second try. Arguments: what to do, and a folder for file tiers. */
#include "check.h"
#include "tierheap.h"

static void before(const char *folder)
{
	char text[4200];
	snprintf(text, sizeof text, "cold=file:%s,limit:100M;policy=size;threshold=10000", folder);
	CHECK_EQ(tierheap_configure(text), 0);
	void *small = tierheap_malloc(NULL, 9999), *large = tierheap_malloc(NULL, 10000);
	CHECK_EQ(tierheap_tier_of(small), 1);
	CHECK_EQ(tierheap_tier_of(large), 2);
	struct tierheap_stats s = {.size = sizeof s};
	CHECK_EQ(tierheap_stats(&s), 0);
	CHECK_EQ(s.tiers, 2);
	CHECK_EQ(s.tier[1].limit, 100 * MIB);
	CHECK(!strncmp(s.tier[1].name, "file:", 5));
	/* The second comes too late, and changes nothing. */
	CHECK_EQ(tierheap_configure("policy=dram"), TIERHEAP_EBUSY);
	CHECK_EQ(tierheap_configure("cold=memfd;policy=cold"), TIERHEAP_EBUSY);
	void *again = tierheap_malloc(NULL, 20000);
	CHECK_EQ(tierheap_tier_of(again), 2);
	tierheap_free(small);
	tierheap_free(large);
	tierheap_free(again);
}

/* Blocks that came from plain DRAM before stay where they are, and are freed as ever. */
static void after_plain_blocks(void)
{
	char *early[100];
	for (size_t i = 0; i < 100; i++) {
		early[i] = tierheap_malloc(NULL, 1000 + i * 100);
		CHECK_EQ(tierheap_tier_of(early[i]), 1);
		fill(early[i], 1000 + i * 100, i);
	}
	CHECK_EQ(tierheap_configure("cold=memfd;policy=cold"), 0);
	/* A slab that is begun may be used up first; what needs a new one is placed as configured. */
	size_t cold = 0;
	for (size_t i = 0; i < 1000; i++)
		cold += tierheap_tier_of(tierheap_malloc(NULL, 1000 + i % 100 * 100)) == 2;
	CHECK_GE(cold, 500);
	void *large = tierheap_malloc(NULL, 3 * MIB);
	CHECK_EQ(tierheap_tier_of(large), 2);
	for (size_t i = 0; i < 100; i++) {
		CHECK_FILLED(early[i], 1000 + i * 100, i);
		tierheap_free(early[i]);
	}
}

static void bad(void)
{
	CHECK_EQ(tierheap_configure(NULL), TIERHEAP_EINVAL);
	CHECK_EQ(tierheap_configure("polcy=cold"), TIERHEAP_ECONFIG);
	CHECK_EQ(tierheap_configure("cold=memfd;policy=colder"), TIERHEAP_ECONFIG);
	CHECK_EQ(tierheap_configure("cold=memfd,limit:10Q;policy=cold"), TIERHEAP_ECONFIG);
	/* A refused string leaves the heap open for a right one. */
	CHECK_EQ(tierheap_configure("cold=memfd;policy=cold"), 0);
	void *p = tierheap_malloc(NULL, 100);
	CHECK_EQ(tierheap_tier_of(p), 2);
	tierheap_free(p);
}

static void missing_tier(void)
{
	CHECK_EQ(tierheap_configure("cold=file:/no/such/folder;policy=cold"), TIERHEAP_ETIER);
	/* The program goes on, in DRAM. */
	void *p = tierheap_malloc(NULL, 100000);
	CHECK_EQ(tierheap_tier_of(p), 1);
	tierheap_free(p);
}

int main(int argc, char **argv)
{
	CHECK(argc > 2);
	if (!strcmp(argv[1], "before"))
		before(argv[2]);
	else if (!strcmp(argv[1], "after-plain-blocks"))
		after_plain_blocks();
	else if (!strcmp(argv[1], "bad"))
		bad();
	else if (!strcmp(argv[1], "missing-tier"))
		missing_tier();
	else
		FAIL("unknown: %s", argv[1]);
	return 0;
}
