/* A setuid program must not obey the environment of whoever starts it. Linked with the library; the driver
 * makes it setuid and sets a variable that makes the library talk or keep a file. It says on stdout when it
 * holds a file without a name. With argument "obey" it runs without the bit, and must obey: else the first
 * run would show nothing. */
#include "check.h"

#include <sys/auxv.h>

int main(int argc, char **argv)
{
	int obey = argc > 1 && !strcmp(argv[1], "obey");
	CHECK_EQ(getauxval(AT_SECURE) != 0, !obey);
	for (size_t n = 10; n < 4 * MIB; n *= 3) {
		char *p = malloc(n);
		CHECK(p);
		memset(p, 1, n);
		if (under_test())
			CHECK_EQ(tier_of(p), obey ? 2 : 1);
		free(p);
	}
	if (unlinked_file_bytes()) {
		CHECK(obey || !under_test());
		CHECK_EQ(write(1, "holds a file\n", 13), 13);
	}
	return 0;
}
