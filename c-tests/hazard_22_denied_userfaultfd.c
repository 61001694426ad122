/* Containers refuse userfaultfd (EPERM by Docker's filter, ENOSYS by others'), perf_event_open and process
 * introspection along with it. A heap that samples and moves by them must do without, and say nothing. With
 * arguments "EXECUTE PROGRAM ..." the filter is put around another program. */
#include "deny.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>

static const int calls[] = {SYS_userfaultfd, SYS_perf_event_open, SYS_process_vm_readv, SYS_ptrace};
enum { CALLS = sizeof calls / sizeof calls[0] };

/* Root has the device for it, too, which a container has not: a file without its ioctl takes its place. */
static void hide_device(void)
{
	if (access("/dev/userfaultfd", R_OK | W_OK))
		return;
	CHECK_EQ(unshare(CLONE_NEWNS), 0);
	CHECK_EQ(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	CHECK_EQ(mount("/dev/null", "/dev/userfaultfd", NULL, MS_BIND, NULL), 0);
}

static void *thread(void *seed)
{
	ordinary_work((uintptr_t)seed);
	return NULL;
}

static void denied(int error)
{
	CHECK_EQ(syscall(SYS_userfaultfd, 0), -1);
	CHECK_EQ(errno, error);
	pthread_t t[2];
	for (size_t i = 0; i < 2; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, thread, (void *)(i + 5)), 0);
	ordinary_work(1);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pthread_join(t[i], NULL), 0);
	if (under_test())
		work_over_fork();
	/* Tiers are still there: only what moves between them later is not. */
	const char *config = getenv("TIERHEAP");
	int always = config && (strstr(config, "policy=cold") || strstr(config, "policy=size"));
	void *p = malloc(5 * MIB);
	CHECK(p);
	if (always)
		CHECK_EQ(tier_of(p), 2);
	free(p);
}

int main(int argc, char **argv)
{
	if (argc == 1 || !strcmp(argv[1], "EXECUTE"))
		hide_device();
	if (argc > 2 && !strcmp(argv[1], "EXECUTE")) {
		filter_calls(calls, CALLS, SECCOMP_RET_ERRNO | EPERM, SECCOMP_RET_ALLOW);
		execv(argv[2], argv + 2);
		FAIL("cannot execute %s", argv[2]);
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
