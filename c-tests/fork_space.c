/* A child comes and goes, and the space its parent's file tier had to hold for it comes back, bit by
 * bit: of blocks freed among others that live on, and without one byte of those changed. A heap that
 * waits until two whole megabytes are free takes up to six times the space of its live blocks when
 * they are overwritten at random between one fork and the next.
 *
 * Then the same in a tier that is nearly full: what is freed there is used again, and new blocks
 * do not fill DRAM with private copies of the file. */
#include "check.h"

#include <malloc.h>

enum { COUNT = 2048 };
static const size_t SIZE = 64 * KIB, SAMPLE = 4 * KIB;
static unsigned char *blocks[COUNT];
static uint64_t seeds[COUNT];
static uint64_t state = 88172645463325252u;

static void renew(int i)
{
	static uint64_t seed;
	free(blocks[i]);
	blocks[i] = malloc(SIZE);
	CHECK(blocks[i]);
	seeds[i] = ++seed;
	memset(blocks[i], 1, SIZE);
	fill(blocks[i], SAMPLE, seeds[i]);
	fill(blocks[i] + SIZE - SAMPLE, SAMPLE, ~seeds[i]);
}

static void verify(void)
{
	for (int i = 0; i < COUNT; i++)
		if (blocks[i]) {
			CHECK_FILLED(blocks[i], SAMPLE, seeds[i]);
			CHECK_FILLED(blocks[i] + SIZE - SAMPLE, SAMPLE, ~seeds[i]);
		}
}

static void fork_once(void)
{
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		verify();
		_exit(0);
	}
	int status;
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status))
		check_died(__FILE__, __LINE__, pid, WTERMSIG(status));
	CHECK_EQ(WEXITSTATUS(status), 0);
}

static size_t in_use(void)
{
	size_t live = 0;
	for (int i = 0; i < COUNT; i++)
		live += blocks[i] != NULL;
	return live * SIZE;
}

int main(void)
{
	for (int i = 0; i < COUNT; i++)
		renew(i);
	fork_once();

	/* Three in four, so that in each two megabytes some stay. */
	for (int i = 0; i < COUNT; i++)
		if (i / 8 % 4 != 0) {
			free(blocks[i]);
			blocks[i] = NULL;
		}
	malloc_trim(0);
	verify();
	const char *configuration = getenv("TIERHEAP");
	if (configuration)
		CHECK_LE(mallinfo2().arena, in_use() * 3 / 2 + 4 * MIB);

	/* And that space is the tier's again. */
	for (int i = 0; i < COUNT; i++)
		if (!blocks[i])
			renew(i);
	verify();

	for (int round = 0; round < 6; round++) {
		fork_once();
		malloc_trim(0);
		for (int i = 0; i < COUNT / 2; i++)
			renew((int)(rnd(&state) % COUNT));
		verify();
	}
	if (configuration && strstr(configuration, "limit:160M")) {
		/* Live are 128 MiB of the 160 MiB that the tier may hold. What was written while the tier had
		 * no free space of its own may be private: a quarter is far from all of it. */
		CHECK_EQ(tier_of(blocks[0]), 2);
		CHECK_LE(kib_of("/proc/self/status", "RssAnon"), in_use() / 4 + 8 * MIB);
	}
	return 0;
}
