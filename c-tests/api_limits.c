/* Limits of kinds: to the byte, with and without strict, and the points that memkind's own tests hold its
 * file-backed kinds to. Argument 1: a folder. */
#include "check.h"
#include "tierheap.h"

static const char *folder;

static tierheap_kind_t *create(const char *backing, const char *rest)
{
	char spec[4300];
	tierheap_kind_t *kind;
	snprintf(spec, sizeof spec, "cold=%s%s%s", backing, *backing == 'f' ? folder : "", rest);
	int code = tierheap_kind_create(spec, &kind);
	if (code)
		FAIL("%s: %s", spec, tierheap_strerror(code));
	return kind;
}

static void to_the_byte(const char *backing)
{
	static const struct {
		size_t bytes;
		const char *rest;
	} limits[] = {
		{4 * MIB, ",limit:4M;policy=cold;strict=1"},
		{5000001, ",limit:5000001;policy=cold;strict=1"},
		{16 * MIB + 4096, ",limit:16781312;policy=cold;strict=1"},
		{33 * MIB - 1, ",limit:34603007;policy=cold;strict=1"},
	};
	for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
		for (size_t n = 1000; n < 3 * MIB; n = n * 14 + 1) {
			tierheap_kind_t *kind = create(backing, limits[i].rest);
			size_t before = unlinked_file_bytes(), asked = 0, count = 0;
			void *p;
			while ((p = tierheap_malloc(kind, n))) {
				CHECK_EQ(tierheap_tier_of(p) > 1, 1);
				memset(p, 1, n);
				asked += tierheap_usable_size(p);
				count++;
			}
			CHECK_EQ(errno, ENOMEM);
			CHECK_LE(asked, limits[i].bytes);
			/* 64 KiB: what a file system adds for its own records of a file. */
			CHECK_LE(unlinked_file_bytes() - before, limits[i].bytes + 64 * KIB);
			/* A slab of the largest class, or a segment, may not fit the rest. */
			CHECK_GE(count, 1);
			if (n < limits[i].bytes / 8)
				CHECK_GE(asked, limits[i].bytes * 6 / 10);
			CHECK_EQ(tierheap_kind_destroy(kind), 0);
		}
}

/* A 16 MiB block fits a kind of 18 MiB, and one of 16 MiB and a page, since what the heap needs for itself is outside the limit. */
static void memkinds_points(const char *backing)
{
	tierheap_kind_t *kind = create(backing, ",limit:18M;policy=cold;strict=1");
	char *p = tierheap_malloc(kind, 16 * MIB);
	CHECK(p);
	CHECK_EQ(tierheap_tier_of(p) > 1, 1);
	memset(p, 1, 16 * MIB);
	CHECK_NULL(tierheap_malloc(kind, 2 * MIB + 1), ENOMEM);
	tierheap_free(p);
	p = tierheap_malloc(kind, 17 * MIB);
	CHECK(p);
	tierheap_free(p);
	CHECK_EQ(tierheap_kind_destroy(kind), 0);
	kind = create(backing, ",limit:16781312;policy=cold;strict=1");
	CHECK(tierheap_malloc(kind, 16 * MIB));
	CHECK_NULL(tierheap_malloc(kind, 2 * MIB), ENOMEM);
	CHECK_EQ(tierheap_kind_destroy(kind), 0);

	/* 10 → 6 → 10 → 8 MiB keeps the pointer. */
	kind = create(backing, ",limit:18M;policy=cold;strict=1");
	p = tierheap_malloc(kind, 10 * MIB);
	CHECK(p);
	char *q;
	fill(p, 10 * MIB, 3);
	CHECK((q = tierheap_realloc(kind, p, 6 * MIB)) == p);
	CHECK_FILLED(q, 6 * MIB, 3);
	CHECK((q = tierheap_realloc(kind, p, 10 * MIB)) == p);
	CHECK_FILLED(q, 6 * MIB, 3);
	CHECK((q = tierheap_realloc(kind, p, 8 * MIB)) == p);
	CHECK_FILLED(q, 6 * MIB, 3);
	CHECK_EQ(tierheap_kind_destroy(kind), 0);

	kind = create(backing, ";policy=cold");
	static const size_t exact[] = {512, 1024, 4096, 5120};
	static const size_t slack[][2] = {{100, 16}, {500, 64}, {1000, 128}, {3000, 512}};
	for (int i = 0; i < 4; i++) {
		p = tierheap_malloc(kind, exact[i]);
		CHECK_EQ(tierheap_usable_size(p), exact[i]);
		p = tierheap_malloc(kind, slack[i][0]);
		CHECK_LE(tierheap_usable_size(p), slack[i][0] + slack[i][1]);
	}
	/* Blocks born cold are whole write units of the medium from 256 bytes on. */
	for (size_t n = 256; n < 100000; n = n * 9 / 8 + 1) {
		p = tierheap_malloc(kind, n);
		CHECK_ALIGNED(p, 256);
		CHECK_EQ(tierheap_usable_size(p) % 256, 0);
	}
	CHECK_EQ(tierheap_kind_destroy(kind), 0);
}

/* Without strict the kind goes on in DRAM, and says so in the statistics. */
static void falls_back(const char *backing)
{
	struct tierheap_stats before = {.size = sizeof before}, after = {.size = sizeof after};
	tierheap_kind_t *kind = create(backing, ",limit:4M;policy=cold");
	CHECK_EQ(tierheap_stats(&before), 0);
	size_t in_tier[2] = {0};
	for (int i = 0; i < 1000; i++) {
		char *p = tierheap_malloc(kind, 10000);
		CHECK(p);
		memset(p, 1, 10000);
		in_tier[tierheap_tier_of(p) > 1] += 10000;
		CHECK(tierheap_kind_of(p) == kind);
	}
	CHECK_GE(in_tier[1], 2 * MIB);
	CHECK_LE(in_tier[1], 4 * MIB);
	CHECK_GE(in_tier[0], 5 * MIB);
	CHECK_EQ(tierheap_stats(&after), 0);
	CHECK_GE(after.fallbacks, before.fallbacks + 1);
	CHECK_EQ(tierheap_kind_destroy(kind), 0);
}

/* What the limit refuses takes nothing from the tier, not even for a moment, and is in no figure: a block of
 * 10 segments where 6 are left, a growth, and slabs of the last slices. */
static void refused_costs_nothing(const char *backing)
{
	struct tierheap_stats s = {.size = sizeof s};
	tierheap_kind_t *kind = create(backing, ",limit:32M;policy=cold;strict=1");
	char *p = tierheap_malloc(kind, 20 * MIB);
	CHECK(p);
	memset(p, 1, 20 * MIB);
	size_t before = unlinked_file_bytes();
	CHECK_NULL(tierheap_malloc(kind, 20 * MIB), ENOMEM);
	CHECK_NULL(tierheap_realloc(kind, p, 33 * MIB), ENOMEM);
	CHECK_NULL(tierheap_realloc(kind, p, 32 * MIB + 1), ENOMEM);
	CHECK_EQ(unlinked_file_bytes(), before);
	CHECK_EQ(tierheap_stats(&s), 0);
	CHECK_EQ(s.tiers, 2);
	CHECK_EQ(s.tier[1].held, 20 * MIB);
	CHECK_EQ(s.tier[1].peak, 20 * MIB);
	CHECK(tierheap_malloc(kind, 12 * MIB));
	CHECK_EQ(tierheap_stats(&s), 0);
	CHECK_EQ(s.tier[1].peak, 32 * MIB);
	CHECK_EQ(tierheap_kind_destroy(kind), 0);
}

/* A kind at its limit does not disturb another. */
static void independent(void)
{
	tierheap_kind_t *full = create("memfd", ",limit:4M;policy=cold;strict=1"),
			*other = create("file:", ",limit:4M;policy=cold;strict=1");
	while (tierheap_malloc(full, 50000)) {
	}
	void *p = tierheap_malloc(other, 3 * MIB);
	CHECK(p);
	CHECK(tierheap_malloc(NULL, 50000));
	CHECK_EQ(tierheap_kind_destroy(full), 0);
	memset(p, 1, 3 * MIB);
	CHECK_EQ(tierheap_kind_destroy(other), 0);
}

int main(int argc, char **argv)
{
	CHECK(argc > 1);
	folder = argv[1];
	static const char *const backings[] = {"memfd", "file:"};
	for (int i = 0; i < 2; i++) {
		to_the_byte(backings[i]);
		memkinds_points(backings[i]);
		falls_back(backings[i]);
		refused_costs_nothing(backings[i]);
	}
	independent();
	return 0;
}
