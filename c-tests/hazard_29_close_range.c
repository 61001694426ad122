/* Daemons close every descriptor they find, and shells open files on the numbers that became free. A
 * heap whose tier is a file must live on without its descriptor, and must never touch the file that got
 * the number since. And nothing of it may leak through exec. */
#include "check.h"

enum { BLOCKS = 400 };
static char *p[BLOCKS];
static size_t n[BLOCKS];

static void renew(uint64_t seed)
{
	for (size_t i = 0; i < BLOCKS; i++) {
		if (p[i])
			CHECK_FILLED(p[i], n[i], i);
		if (i % 3 == 0 && p[i])
			continue;
		free(p[i]);
		n[i] = rnd(&seed) % 150000 + 1;
		p[i] = malloc(n[i]);
		CHECK(p[i]);
		fill(p[i], n[i], i);
	}
}

static int open_descriptors(int *which, int most)
{
	int count = 0;
	for (int fd = 3; fd < 20000; fd++)
		if (fcntl(fd, F_GETFD) >= 0 && count < most)
			which[count++] = fd;
	return count;
}

int main(int argc, char **argv)
{
	static int open_before[64];
	if (argc > 1 && !strcmp(argv[1], "exec")) {
		/* Runs without the library; the driver starts the first program with no descriptors. */
		int count = open_descriptors(open_before, 64);
		if (count)
			FAIL("%d descriptors came through exec, the first is %d", count, open_before[0]);
		return 0;
	}
	renew(1);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		unsetenv("LD_PRELOAD");
		unsetenv("TIERHEAP");
		unsetenv("EXPECT_TIERHEAP");
		execl("/proc/self/exe", argv[0], "exec", (char *)NULL);
		_exit(9);
	}
	CHECK_CHILD(pid);

	/* What the library holds lies above the numbers that programs count on. */
	int count = open_descriptors(open_before, 64);
	for (int i = 0; i < count; i++)
		CHECK_GE(open_before[i], 10);
	CHECK_EQ(close_range(3, ~0U, 0), 0);

	/* The program's own file takes every number that was in use. */
	char name[] = "/tmp/hazard_29_XXXXXX";
	int file = mkstemp(name);
	CHECK(file >= 0);
	unlink(name);
	CHECK_EQ(write(file, "the program's own\n", 18), 18);
	for (int i = 0; i < count; i++)
		CHECK_EQ(dup2(file, open_before[i]), open_before[i]);
	for (uint64_t round = 2; round < 8; round++)
		renew(round);
	char *large = malloc(30 * MIB);
	CHECK(large);
	fill(large, 30 * MIB, 99);
	renew(9);
	pid = fork();
	CHECK(pid >= 0);
	renew(10);
	CHECK_FILLED(large, 30 * MIB, 99);
	if (!pid)
		_exit(0);
	CHECK_CHILD(pid);
	free(large);
	for (int i = 0; i < BLOCKS; i++)
		free(p[i]);

	struct stat st;
	CHECK_EQ(fstat(file, &st), 0);
	CHECK_EQ(st.st_size, 18);
	char text[32] = "";
	CHECK_EQ(pread(file, text, sizeof text, 0), 18);
	CHECK(!memcmp(text, "the program's own\n", 18));
	CHECK_LE(st.st_blocks * 512, 64 * KIB);
	/* Standard streams closed as well: number 0 to 2 are a program's, too. */
	for (int fd = 0; fd < 3; fd++)
		close(fd);
	for (uint64_t round = 20; round < 23; round++) {
		char *q = malloc(3 * MIB);
		CHECK(q);
		memset(q, 1, 3 * MIB);
		free(q);
	}
	return 0;
}
