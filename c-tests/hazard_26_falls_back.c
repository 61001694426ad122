/* The same limit without strict=1: no request fails, the rest comes from DRAM, and the statistics say
 * how often. Driver: policy=cold with limit:32M; no budget for DRAM. */
#include "check.h"

struct tier_stats {
	uint64_t asked, held, resident, peak, limit, fallbacks;
	char name[40];
};
struct stats {
	size_t size;
	uint32_t tiers, reserved;
	uint64_t foreign_frees, fallbacks, warnings;
	struct tier_stats tier[9];
};

int main(void)
{
	enum { BLOCKS = 1000 };
	static char *p[BLOCKS];
	size_t in_tier[3] = {0};
	for (size_t i = 0; i < BLOCKS; i++) {
		size_t n = i * 97 % 90000 + 20000;
		p[i] = malloc(n);
		CHECK(p[i]);
		fill(p[i], n, i);
		int tier = tier_of(p[i]);
		CHECK(tier == 1 || tier == 2);
		in_tier[tier] += n;
	}
	CHECK_GE(in_tier[2], 20 * MIB);
	CHECK_LE(in_tier[2], 32 * MIB);
	CHECK_GE(in_tier[1], 20 * MIB);
	/* And what the file system adds for its own records of the file. */
	CHECK_LE(unlinked_file_bytes(), 32 * MIB + 64 * KIB);
	int (*get)(struct stats *);
	*(void **)&get = library_symbol("tierheap_stats");
	CHECK(get);
	struct stats s = {.size = sizeof s};
	CHECK_EQ(get(&s), 0);
	CHECK_EQ(s.tiers, 2);
	CHECK_EQ(s.tier[1].limit, 32 * MIB);
	CHECK_LE(s.tier[1].held, 32 * MIB);
	CHECK_LE(s.tier[1].peak, 32 * MIB);
	CHECK_GE(s.tier[1].asked, in_tier[2]);
	CHECK_GE(s.tier[1].held, in_tier[2]);
	CHECK_GE(s.tier[1].fallbacks, 1);
	CHECK_GE(s.fallbacks, s.tier[1].fallbacks);
	CHECK_EQ(s.tier[0].fallbacks, 0);
	CHECK_GE(s.warnings, 1);
	for (size_t i = 0; i < BLOCKS; i++) {
		CHECK_FILLED(p[i], i * 97 % 90000 + 20000, i);
		free(p[i]);
	}
	return 0;
}
