/* A setuid program must not obey the environment of whoever starts it. Linked with the library; the
 * driver makes it setuid and sets TIERHEAP to a cold policy, a tier in a folder of its own, and a report.
 * With argument "obey" it runs without the bit, and must obey: else the first run would show nothing. */
#include "check.h"

#include <sys/auxv.h>

extern void *tierheap_malloc(void *kind, size_t size);
extern void tierheap_free(void *p);
extern int tierheap_tier_of(const void *p);

int main(int argc, char **argv)
{
	int obey = argc > 1 && !strcmp(argv[1], "obey");
	CHECK_EQ(getauxval(AT_SECURE) != 0, !obey);
	CHECK(getenv("TIERHEAP"));
	for (size_t n = 10; n < 4 * MIB; n *= 3) {
		void *p = tierheap_malloc(NULL, n);
		CHECK(p);
		CHECK_EQ(tierheap_tier_of(p), obey ? 2 : 1);
		tierheap_free(p);
	}
	CHECK_EQ(unlinked_file_bytes() != 0, obey);
	return 0;
}
