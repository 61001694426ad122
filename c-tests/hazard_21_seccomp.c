/* Sandboxed helpers are killed by a system call that their filter does not know. Plain malloc asks for
 * nothing that glibc's malloc would not: "kill" installs a filter of just those calls. In a tiered
 * configuration more is needed, and a filter that answers EPERM ("deny") must lead to DRAM, not to a
 * crash or to lost memory. */
#include "deny.h"

#include <pthread.h>
#include <semaphore.h>

static const int allowed[] = {
	/* glibc's malloc */
	SYS_brk, SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_futex,
	/* the program itself */
	SYS_write, SYS_rt_sigprocmask, SYS_exit, SYS_exit_group, SYS_rt_sigreturn, SYS_set_robust_list, SYS_rseq,
	/* glibc's malloc once more, which counts processors when threads contend; tierheap needs none of these */
	SYS_openat, SYS_read, SYS_close, SYS_sched_getaffinity,
};
enum { ALLOWED = sizeof allowed / sizeof allowed[0], COUNTING = 4 };

static void on_sigsys(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)context;
	FAIL("system call %d, which glibc's malloc does not make", info->si_syscall);
}

enum { SLOTS = 400 };
static sem_t start;

static void work(size_t most)
{
	uint64_t seed = most;
	char *p[SLOTS] = {0};
	size_t n[SLOTS] = {0};
	for (int step = 0; step < 8000; step++) {
		size_t i = rnd(&seed) % SLOTS;
		if (p[i])
			CHECK_FILLED(p[i], n[i], i);
		size_t to = rnd(&seed) % (step % 100 ? 2000 : most) + 1;
		if (step % 3 == 0 && p[i]) {
			p[i] = realloc(p[i], to);
			CHECK(p[i]);
		} else {
			free(p[i]);
			p[i] = step % 5 ? malloc(to) : calloc(1, to);
			CHECK(p[i]);
		}
		n[i] = to;
		fill(p[i], to, i);
	}
	for (int i = 0; i < SLOTS; i++)
		free(p[i]);
}

static void *thread(void *unused)
{
	(void)unused;
	sem_wait(&start);
	work(300000);
	return NULL;
}

int main(int argc, char **argv)
{
	CHECK(argc > 1);
	int deny = !strcmp(argv[1], "deny");
	struct sigaction action = {.sa_sigaction = on_sigsys, .sa_flags = SA_SIGINFO};
	CHECK_EQ(sigaction(SIGSYS, &action, NULL), 0);
	free(malloc(1));
	sem_init(&start, 0, 0);
	pthread_t t[2];
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, thread, NULL), 0);
	void *before = malloc(5 * MIB);
	CHECK(before);
	fill(before, 5 * MIB, 9);
	filter_calls(allowed, ALLOWED - (under_test() ? COUNTING : 0), SECCOMP_RET_ALLOW, deny ? SECCOMP_RET_ERRNO | EPERM : SECCOMP_RET_TRAP);
	for (int i = 0; i < 2; i++)
		sem_post(&start);
	work(4 * MIB);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pthread_join(t[i], NULL), 0);
	CHECK_FILLED(before, 5 * MIB, 9);
	free(before);
	return 0;
}
