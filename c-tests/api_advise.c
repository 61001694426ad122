/* tierheap_advise takes its hints for any part of any block, keeps every byte, and says what it cannot
 * take. A large block that the size policy put below, such as a hash table that has just doubled, is the
 * case it is there for. */
#include "check.h"
#include "tierheap.h"

int main(void)
{
	tierheap_kind_t *kind;
	CHECK_EQ(tierheap_kind_create("cold=memfd;policy=size;threshold=64K", &kind), 0);
	static const int advice[] = {TIERHEAP_HOT, TIERHEAP_COLD, TIERHEAP_NORMAL};
	for (size_t n = 100; n < 20 * MIB; n = n * 7 + 1) {
		char *p = tierheap_malloc(kind, n);
		CHECK(p);
		fill(p, n, n);
		for (int i = 0; i < 3; i++) {
			CHECK_EQ(tierheap_advise(p, n, advice[i]), 0);
			CHECK_FILLED(p, n, n);
			CHECK_EQ(tierheap_advise(p + n / 3, n / 3, advice[i]), 0);
			CHECK_FILLED(p, n, n);
			CHECK_GE(tierheap_tier_of(p), 1);
		}
		CHECK_EQ(tierheap_advise(p, 0, TIERHEAP_HOT), 0);
		CHECK_EQ(tierheap_advise(p, n, 12345), TIERHEAP_EINVAL);
		CHECK_EQ(tierheap_advise(p, n, -1), TIERHEAP_EINVAL);
		p = tierheap_realloc(kind, p, n * 2);
		CHECK_FILLED(p, n, n);
		tierheap_free(p);
	}
	int local = 0;
	CHECK_EQ(tierheap_advise(&local, sizeof local, TIERHEAP_HOT), TIERHEAP_EFOREIGN);
	CHECK_EQ(tierheap_advise(NULL, 100, TIERHEAP_HOT), TIERHEAP_EFOREIGN);
	CHECK_EQ(tierheap_kind_destroy(kind), 0);
	return 0;
}
