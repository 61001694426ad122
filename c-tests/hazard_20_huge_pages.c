/* Transparent huge pages make a sparse heap resident: a byte touched costs two megabytes. Where the system
 * leaves the choice to the program ("madvise") the allocator must not choose them for it; where the system
 * chooses them always, the allocator must have an option against it, which the driver sets. With argument
 * "huge" the driver's option asks for them, and they must be there: else the option would show nothing. */
#include "check.h"

enum { BLOCKS = 64, SIZE = 4 << 20, STEP = 64 << 10 };

static void system_wide(char *mode, size_t n)
{
	int fd = open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY | O_CLOEXEC);
	ssize_t have = fd < 0 ? 0 : read(fd, mode, n - 1);
	mode[have > 0 ? have : 0] = 0;
	close(fd);
}

int main(int argc, char **argv)
{
	static char *p[BLOCKS];
	char mode[128];
	int wanted = argc > 1 && !strcmp(argv[1], "huge");
	system_wide(mode, sizeof mode);
	if (!strstr(mode, "[madvise]") && !strstr(mode, "[always]"))
		NOT_APPLICABLE("this system has no transparent huge pages: %s", mode);
	size_t before = kib_of("/proc/self/smaps_rollup", "Rss"), touched = 0;
	for (size_t i = 0; i < BLOCKS; i++) {
		p[i] = malloc(SIZE);
		CHECK(p[i]);
		for (size_t at = 0; at < SIZE; at += STEP, touched += 4096)
			p[i][at] = 1;
	}
	size_t resident = kib_of("/proc/self/smaps_rollup", "Rss") - before;
	size_t huge = kib_of("/proc/self/smaps_rollup", "AnonHugePages");
	if (wanted)
		CHECK_GE(huge, BLOCKS * (size_t)SIZE / 2);
	else if (huge > 4 * touched || (under_test() && resident > 4 * touched))
		FAIL("%zu bytes touched, %zu resident, %zu of them in huge pages; the system says %s", touched,
		     resident, huge, mode);
	for (size_t i = 0; i < BLOCKS; i++)
		free(p[i]);
	return 0;
}
