/* The budget of DRAM holds: with dram=32M what the policy would put into DRAM goes to the cold tier once
 * the budget is used, and comes back when it is free. Driver: policy=size;threshold=1M;dram=32M. */
#include "check.h"

int main(void)
{
	enum { BLOCKS = 8000, SIZE = 10000 };
	static char *p[BLOCKS];
	size_t in_tier[3] = {0};
	for (size_t i = 0; i < BLOCKS; i++) {
		p[i] = malloc(SIZE);
		CHECK(p[i]);
		fill(p[i], SIZE, i);
		int tier = tier_of(p[i]);
		CHECK(tier == 1 || tier == 2);
		in_tier[tier] += SIZE;
	}
	CHECK_LE(in_tier[1], 32 * MIB);
	CHECK_GE(in_tier[1], 20 * MIB);
	CHECK_GE(in_tier[2], 40 * MIB);
	for (size_t i = 0; i < BLOCKS; i++) {
		CHECK_FILLED(p[i], SIZE, i);
		free(p[i]);
	}
	for (size_t i = 0; i < 500; i++) {
		p[i] = malloc(SIZE + 9000);
		CHECK(p[i]);
	}
	size_t dram = 0;
	for (size_t i = 0; i < 500; i++) {
		dram += tier_of(p[i]) == 1;
		free(p[i]);
	}
	CHECK_GE(dram, 450);
	return 0;
}
