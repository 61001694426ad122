/* RLIMIT_FSIZE makes a write past it, and an fallocate past it, deliver SIGXFSZ, which kills. A heap
 * whose tier is a file must not be the death of a program with a small `ulimit -f`. The driver sets
 * 1 MiB before the start; argument 1 "later" sets it here instead, when the tier has grown already. */
#include "check.h"

#include <sys/resource.h>

static void work(size_t first)
{
	enum { BLOCKS = 300 };
	static char *p[BLOCKS];
	for (size_t i = 0; i < BLOCKS; i++) {
		size_t n = (i + first) * 997 % 100000 + 1;
		p[i] = malloc(n);
		CHECK(p[i]);
		fill(p[i], n, i);
	}
	char *large = malloc(20 * MIB);
	CHECK(large);
	fill(large, 20 * MIB, 1);
	for (size_t i = 0; i < BLOCKS; i++) {
		CHECK_FILLED(p[i], (i + first) * 997 % 100000 + 1, i);
		free(p[i]);
	}
	CHECK_FILLED(large, 20 * MIB, 1);
	free(large);
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "later")) {
		work(1);
		struct rlimit one = {MIB, MIB};
		CHECK_EQ(setrlimit(RLIMIT_FSIZE, &one), 0);
	}
	struct rlimit limit;
	CHECK_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
	CHECK_EQ(limit.rlim_cur, MIB);
	for (size_t round = 0; round < 4; round++)
		work(round * 13);
	if (!under_test())
		return 0; /* with a heap in a shared file the rest is row 13 */
	pid_t pid = fork();
	CHECK(pid >= 0);
	work(5);
	if (!pid)
		_exit(0);
	CHECK_CHILD(pid);
	return 0;
}
