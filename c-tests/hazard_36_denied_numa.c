/* A container without CAP_SYS_NICE is refused the calls that place memory on NUMA nodes. A heap that knows
 * nodes must come up without them. With argument "placed" nothing is refused, and large blocks must be in the
 * tier that the driver's configuration names: else the refusal would show nothing. */
#include "deny.h"

#include <pthread.h>

#ifndef SYS_set_mempolicy_home_node
#define SYS_set_mempolicy_home_node 450
#endif

static const int calls[] = {SYS_mbind, SYS_set_mempolicy, SYS_get_mempolicy, SYS_move_pages, SYS_migrate_pages,
			    SYS_set_mempolicy_home_node};
enum { CALLS = sizeof calls / sizeof calls[0] };

static void *thread(void *seed)
{
	ordinary_work((uintptr_t)seed);
	return NULL;
}

static void work(void)
{
	pthread_t t[2];
	for (size_t i = 0; i < 2; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, thread, (void *)(i + 5)), 0);
	ordinary_work(1);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pthread_join(t[i], NULL), 0);
	if (under_test())
		work_over_fork();
}

static void denied(int error)
{
	CHECK_EQ(syscall(SYS_get_mempolicy, NULL, NULL, 0, NULL, 0), -1);
	CHECK_EQ(errno, error);
	work();
	/* A tier of nodes is one that this process cannot have. */
	const char *config = getenv("TIERHEAP");
	if (config && strstr(config, "cold=node:")) {
		void *p = malloc(5 * MIB);
		CHECK_EQ(tier_of(p), 1);
		free(p);
	}
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "placed")) {
		void *p = malloc(5 * MIB);
		memset(p, 1, 5 * MIB);
		CHECK_EQ(tier_of(p), 2);
		free(p);
		work();
		return 0;
	}
	if (argc > 1) {
		denied(atoi(argv[1]));
		return 0;
	}
	char eperm[8], enosys[8];
	snprintf(eperm, sizeof eperm, "%d", EPERM);
	snprintf(enosys, sizeof enosys, "%d", ENOSYS);
	again_denied(calls, CALLS, EPERM, eperm);
	again_denied(calls, CALLS, ENOSYS, enosys);
	return 0;
}
