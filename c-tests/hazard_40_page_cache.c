/* The pages of a plain-file tier are page cache, and count against the memory limit of the container like any
 * others. The program fills three times that limit through such a tier: the kernel must find pages to take
 * back, so that it is slow at worst, and every byte is there afterwards. Makes a memory control group of its own;
 * needs root. */
#include "check.h"

#define LIMIT (64 * MIB)
#define MOST 192

static char group[256];

static int put(const char *file, const char *text)
{
	char path[320];
	snprintf(path, sizeof path, "%s/%s", group, file);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	ssize_t n = write(fd, text, strlen(text));
	close(fd);
	return n == (ssize_t)strlen(text) ? 0 : -1;
}

/* Control groups of the first version, of the second beside it, and of the second alone. */
static int make_group(void)
{
	static const char *const under[][2] = {{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
					       {"/sys/fs/cgroup", "memory.max"},
					       {"/sys/fs/cgroup/unified", "memory.max"}};
	char limit[32];
	snprintf(limit, sizeof limit, "%zu", LIMIT);
	for (size_t i = 0; i < 3; i++) {
		snprintf(group, sizeof group, "%s/hazard_40_%d", under[i][0], (int)getpid());
		if (mkdir(group, 0755))
			continue;
		if (!put(under[i][1], limit)) {
			/* Else a machine with swap would swap what is not page cache. */
			put("memory.swappiness", "0");
			put("memory.swap.max", "0");
			return 1;
		}
		rmdir(group);
	}
	return 0;
}

static void child(void)
{
	static char *p[MOST];
	char self[32];
	snprintf(self, sizeof self, "%d", (int)getpid());
	CHECK_EQ(put("cgroup.procs", self), 0);
	for (size_t i = 0; i < MOST; i++) {
		p[i] = malloc(MIB);
		CHECK(p[i]);
		fill(p[i], MIB, i);
	}
	if (under_test())
		CHECK(in_slow_tier(p[MOST / 2]));
	for (size_t i = 0; i < MOST; i++) {
		CHECK_FILLED(p[i], MIB, i);
		free(p[i]);
	}
	_exit(0);
}

int main(void)
{
	int below = 0;
	void *p[16];
	for (int i = 0; i < 16; i++) {
		p[i] = malloc(MIB);
		CHECK(p[i]);
		below += in_slow_tier(p[i]);
	}
	for (int i = 0; i < 16; i++)
		free(p[i]);
	if (below < 12 && !under_test())
		NOT_APPLICABLE("only %d of 16 large blocks are in a file", below);
	if (!make_group())
		NOT_APPLICABLE("no memory control group can be made here");
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid)
		child();
	int status = 0;
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	for (int i = 0; i < 100 && rmdir(group) && errno == EBUSY; i++)
		usleep(20000);
	if (WIFSIGNALED(status))
		check_died(__FILE__, __LINE__, pid, WTERMSIG(status));
	CHECK_EQ(WEXITSTATUS(status), 0);
	return 0;
}
