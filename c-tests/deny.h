/* deny.h - system calls that a container or a sandbox refuses, by a seccomp filter. What is refused must
 * be so before the allocator starts: a program installs the filter and executes itself anew. */
#ifndef DENY_H
#define DENY_H

#include "check.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

enum { FILTER_MOST = 60 };

/* These calls get `listed`, all others `otherwise`; in every thread, and after exec. */
static inline void filter_calls(const int *calls, unsigned count, uint32_t listed, uint32_t otherwise)
{
	struct sock_filter code[FILTER_MOST + 4];
	unsigned short n = 0;
	CHECK(count <= FILTER_MOST);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (unsigned i = 0; i < count; i++)
		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)calls[i],
							 (unsigned char)(count - i), 0);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, otherwise);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, listed);
	struct sock_fprog program = {.len = n, .filter = code};
	CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	CHECK_EQ(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program), 0);
}

/* Executes this program anew, with one argument, where these calls fail with `error`. */
static inline void again_denied(const int *calls, unsigned count, int error, char *argument)
{
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		char *arguments[] = {(char *)"denied", argument, NULL};
		filter_calls(calls, count, SECCOMP_RET_ERRNO | (uint32_t)error, SECCOMP_RET_ALLOW);
		execv("/proc/self/exe", arguments);
		_exit(9);
	}
	CHECK_CHILD(pid);
}

/* What an ordinary program asks of its heap; every byte is looked at. */
static inline void ordinary_work(uint64_t seed)
{
	enum { SLOTS = 300 };
	char *p[SLOTS] = {0};
	size_t n[SLOTS] = {0};
	for (int step = 0; step < 3000; step++) {
		size_t i = rnd(&seed) % SLOTS;
		if (p[i])
			CHECK_FILLED(p[i], n[i], i);
		n[i] = rnd(&seed) % (step % 100 ? 3000 : 500000) + 1;
		free(p[i]);
		p[i] = step % 3 ? (char *)malloc(n[i]) : (char *)calloc(1, n[i]);
		CHECK(p[i]);
		fill(p[i], n[i], i);
	}
	for (int i = 0; i < SLOTS; i++)
		free(p[i]);
}

/* With a heap in a shared file that is row 13, so it is asked of tierheap only. */
static inline void work_over_fork(void)
{
	pid_t pid = fork();
	CHECK(pid >= 0);
	ordinary_work(2);
	if (!pid)
		_exit(0);
	CHECK_CHILD(pid);
}

#endif
