/* Whatever the configuration string says after a very long path is still read: predecessors cut it at
 * 1023 bytes. Argument 1: the tier that a block of 3000 bytes must be in; of another allocator, it must
 * be in a file. */
#include "check.h"

int main(int argc, char **argv)
{
	CHECK(argc > 1);
	void *p = malloc(3000), *q = malloc(100);
	memset(p, 1, 3000);
	if (under_test()) {
		CHECK_EQ(tier_of(p), atoi(argv[1]));
		CHECK_EQ(tier_of(q), 1);
	} else {
		CHECK(in_slow_tier(p));
	}
	free(p);
	free(q);
	return 0;
}
