/* Before a fork tierheap puts the shared view of a file tier aside, whose pages then count a second time
 * in the resident size of the process as the program touches its memory again. Calls of malloc and
 * free take that view down; a heap that forgets it would seem to have doubled for ever. */
#include "check.h"

enum { COUNT = 640 };
static const size_t SIZE = 100 * KIB;

/* Bytes, by the kernel. */
static size_t resident(void)
{
	size_t pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");
	CHECK(f && fscanf(f, "%*u %zu", &pages) == 1);
	fclose(f);
	return pages * 4096;
}

int main(void)
{
	static char *blocks[COUNT];
	for (int i = 0; i < COUNT; i++) {
		blocks[i] = malloc(SIZE);
		CHECK(blocks[i]);
		fill(blocks[i], SIZE, i);
	}
	size_t before = resident();
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0)
		_exit(0);
	int status;
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	for (int i = 0; i < COUNT; i++)
		CHECK_FILLED(blocks[i], SIZE, i);
	for (int round = 0; round < 50; round++)
		for (int i = 0; i < 40; i++) {
			free(blocks[i]);
			blocks[i] = malloc(SIZE);
			CHECK(blocks[i]);
			memset(blocks[i], 1, SIZE);
		}
	CHECK_LE(resident(), before + before / 4);
	return 0;
}
