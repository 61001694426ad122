/* tierheap_stats and tierheap_stats_print: figures that add up, to the byte where they can, in the structure
 * and in both forms. Prints the JSON form to stdout for the driver to read. Argument 1: a folder. */
#include "check.h"
#include "tierheap.h"

enum { COUNT = 3000 };
static void *blocks[COUNT];

static struct tierheap_stats get(void)
{
	struct tierheap_stats s;
	memset(&s, 0xff, sizeof s);
	s.size = sizeof s;
	CHECK_EQ(tierheap_stats(&s), 0);
	CHECK_EQ(s.tiers, 3);
	for (uint32_t i = 0; i < s.tiers; i++) {
		CHECK_LE(s.tier[i].asked, s.tier[i].held);
		CHECK_LE(s.tier[i].held, s.tier[i].peak);
		CHECK(memchr(s.tier[i].name, 0, sizeof s.tier[i].name));
	}
	return s;
}

static char text[65536];
static size_t length;

/* Allocates from every tier, as a writer that collects the text in a growing block may. */
static void collect(void *opaque, const char *part, size_t n)
{
	for (size_t i = 0; i < 3; i++) {
		void *p = tierheap_malloc(NULL, (size_t)600 << i * 6);
		CHECK(p);
		tierheap_free(p);
	}
	CHECK(opaque == &length);
	CHECK(length + n < sizeof text);
	memcpy(text + length, part, n);
	length += n;
	text[length] = 0;
}

static void figures(void)
{
	struct tierheap_stats before = get();
	CHECK(!strcmp(before.tier[0].name, "dram"));
	CHECK(!strcmp(before.tier[1].name, "memfd"));
	CHECK(!strncmp(before.tier[2].name, "file:", 5));
	CHECK_EQ(before.tier[1].limit, 8 * MIB);
	size_t small = 0, large = 0;
	for (size_t i = 0; i < COUNT; i++) {
		size_t n = i % 2 ? i % 900 + 1 : i * 13 % 18000 + 1024;
		blocks[i] = tierheap_malloc(NULL, n);
		CHECK(blocks[i]);
		memset(blocks[i], 1, n);
		*(n < 1024 ? &small : &large) += tierheap_usable_size(blocks[i]);
	}
	struct tierheap_stats held = get();
	/* Asked is the sum of the blocks' sizes, exactly; this thread's own counts are in it. */
	CHECK_EQ(held.tier[0].asked - before.tier[0].asked, small);
	CHECK_EQ(held.tier[1].asked + held.tier[2].asked - before.tier[1].asked - before.tier[2].asked, large);
	/* Slabs of eighty classes share the 8 MiB: not all are full. */
	CHECK_GE(held.tier[1].asked, 3 * MIB);
	CHECK_LE(held.tier[1].held, 8 * MIB);
	CHECK_LE(held.tier[1].peak, 8 * MIB);
	CHECK_GE(held.tier[1].resident + held.tier[2].resident, large);
	/* Blocks that the first cold tier refused and the second took. */
	CHECK_GE(held.tier[1].fallbacks, 1);
	for (size_t i = 0; i < COUNT; i++)
		tierheap_free(blocks[i]);
	struct tierheap_stats after = get();
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(after.tier[i].asked, before.tier[i].asked);
		CHECK_GE(after.tier[i].peak, held.tier[i].held);
	}
}

static void bad_arguments(void)
{
	struct tierheap_stats s = {0};
	CHECK_EQ(tierheap_stats(NULL), TIERHEAP_EINVAL);
	CHECK_EQ(tierheap_stats(&s), TIERHEAP_EINVAL);
	CHECK_EQ(tierheap_stats_print(NULL, NULL, "text"), TIERHEAP_EINVAL);
	CHECK_EQ(tierheap_stats_print(collect, &length, "yaml"), TIERHEAP_EINVAL);
	CHECK_EQ(length, 0);
}

int main(int argc, char **argv)
{
	CHECK(argc > 1);
	/* A path longer than what is copied of a name at a time, with letters of two bytes. */
	char folder[1024], spec[1200];
	int n = snprintf(folder, sizeof folder, "%s/", argv[1]);
	for (int depth = 0; depth < 3; depth++) {
		for (int i = 0; i < 100; i++)
			n += snprintf(folder + n, sizeof folder - (size_t)n, "%s", i % 7 ? "x" : "\xc3\xa9");
		CHECK_EQ(mkdir(folder, 0700), 0);
		n += snprintf(folder + n, sizeof folder - (size_t)n, "/");
	}
	snprintf(spec, sizeof spec, "cold=memfd,limit:8M;cold=file:%s;policy=size;threshold=1K", folder);
	CHECK_EQ(tierheap_configure(spec), 0);
	figures();
	bad_arguments();
	CHECK_EQ(tierheap_stats_print(collect, &length, "text"), 0);
	CHECK(strstr(text, "dram") && strstr(text, "memfd"));
	CHECK(strstr(text, folder));
	CHECK(text[length - 1] == '\n');
	length = 0;
	void *kept = tierheap_malloc(NULL, 5 * MIB);
	CHECK_EQ(tierheap_stats_print(collect, &length, "json"), 0);
	tierheap_free(kept);
	CHECK(strstr(text, folder));
	CHECK_EQ(write(1, text, length), length);
	while (strlen(folder) > strlen(argv[1]) + 1) {
		CHECK_EQ(rmdir(folder), 0);
		folder[strlen(folder) - 1] = 0;
		strrchr(folder, '/')[1] = 0;
	}
	return 0;
}
