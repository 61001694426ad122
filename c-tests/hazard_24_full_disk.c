/* A full file system shows as SIGBUS at the first write to a sparse file, unless the space was
 * allocated before. The driver gives a tier on a tmpfs of 8 MiB; this program asks for 40.
 * Argument 1: "falls-back" (every request is served, from DRAM in the end) or "strict" (NULL, ENOMEM). */
#include "check.h"

enum { BLOCKS = 500 };
static char *p[BLOCKS];
static size_t n[BLOCKS];

int main(int argc, char **argv)
{
	CHECK(argc > 1);
	int strict = !strcmp(argv[1], "strict");
	uint64_t seed = 8;
	for (int round = 0; round < 2; round++) {
		size_t served = 0, cold = 0, refused = 0;
		for (size_t i = 0; i < BLOCKS; i++) {
			n[i] = rnd(&seed) % 160000 + 1;
			errno = 0;
			p[i] = i % 2 ? malloc(n[i]) : calloc(1, n[i]);
			if (!p[i]) {
				CHECK(strict);
				CHECK_EQ(errno, ENOMEM);
				refused++;
				continue;
			}
			fill(p[i], n[i], i);
			served += n[i];
			if (tier_of(p[i]) == 2)
				cold += n[i];
		}
		if (round == 0 && under_test()) {
			/* The tier was used, and used up. */
			CHECK_GE(cold, 3 * MIB);
			CHECK_LE(cold, 8 * MIB);
			if (strict)
				CHECK_EQ(served, cold);
		}
		if (under_test() && strict)
			CHECK(refused > 0);
		/* A child on a full disk copies what it writes, and the copy needs no space there. */
		pid_t pid = fork();
		CHECK(pid >= 0);
		for (size_t i = 0; i < BLOCKS; i++) {
			if (!p[i])
				continue;
			CHECK_FILLED(p[i], n[i], i);
			fill(p[i], n[i], i + (pid ? 5000 : 9000));
			CHECK_FILLED(p[i], n[i], i + (pid ? 5000 : 9000));
		}
		if (!pid)
			_exit(0);
		CHECK_CHILD(pid);
		for (size_t i = 0; i < BLOCKS; i++)
			free(p[i]);
	}
	return 0;
}
