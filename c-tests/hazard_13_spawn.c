/* vfork, posix_spawn, system and popen share the parent's memory until they exec: nothing may be
 * snapshot, undone or torn down for them, and the heap goes on as if nothing had happened. Children
 * that close everything, exec or exit at once leave the parent's heap alone too. */
#include "check.h"

#include <spawn.h>

extern char **environ;

enum { BLOCKS = 300 };
static char *p[BLOCKS];
static size_t n[BLOCKS];

static void verify(void)
{
	for (size_t i = 0; i < BLOCKS; i++)
		CHECK_FILLED(p[i], n[i], i);
}

static void renew(uint64_t *seed)
{
	for (size_t i = 0; i < BLOCKS; i += 2) {
		free(p[i]);
		n[i] = rnd(seed) % 50000 + 1;
		p[i] = malloc(n[i]);
		CHECK(p[i]);
		fill(p[i], n[i], i);
	}
}

int main(void)
{
	uint64_t seed = 31;
	for (size_t i = 0; i < BLOCKS; i++) {
		n[i] = 10;
		p[i] = malloc(n[i]);
		fill(p[i], n[i], i);
	}
	/* volatile: vfork returns twice. */
	for (volatile int round = 0; round < 12; round++) {
		renew(&seed);
		pid_t pid;
		char *arguments[] = {"true", NULL};
		switch (round % 6) {
		case 0:
			CHECK_EQ(posix_spawnp(&pid, "true", NULL, NULL, arguments, environ), 0);
			CHECK_CHILD(pid);
			break;
		case 1:
			CHECK_EQ(system("exit 0"), 0);
			break;
		case 2: {
			FILE *f = popen("cat", "w");
			CHECK(f);
			CHECK_EQ(pclose(f), 0);
			break;
		}
		case 3:
			pid = vfork();
			CHECK(pid >= 0);
			if (!pid) {
				execlp("true", "true", (char *)NULL);
				_exit(9);
			}
			CHECK_CHILD(pid);
			break;
		case 4:
			pid = fork();
			CHECK(pid >= 0);
			if (!pid)
				_exit(0);
			CHECK_CHILD(pid);
			break;
		default:
			pid = fork();
			CHECK(pid >= 0);
			if (!pid) {
				close_range(3, ~0U, 0);
				execlp("true", "true", (char *)NULL);
				_exit(9);
			}
			CHECK_CHILD(pid);
		}
		verify();
		renew(&seed);
		verify();
	}
	return 0;
}
