/* Nothing on stdout or stderr unless asked for: scripts and test suites compare both. This program uses
 * every service of the heap, threads, fork, failure and recovery included, and the driver demands that
 * both streams stay empty and that no descriptor below 10 is taken. */
#include "check.h"

#include <malloc.h>
#include <pthread.h>

static void *thread(void *unused)
{
	(void)unused;
	for (size_t n = 1; n < 3 * MIB; n = n * 2 + 1) {
		void *p = malloc(n);
		memset(p, 1, n);
		free(realloc(p, n * 2));
	}
	return NULL;
}

int main(void)
{
	int fd = open("/dev/null", O_RDONLY);
	CHECK_EQ(fd, 3);
	close(fd);
	thread(NULL);
	pthread_t t;
	CHECK_EQ(pthread_create(&t, NULL, thread, NULL), 0);
	CHECK_EQ(pthread_join(t, NULL), 0);
	CHECK_NULL(malloc(PTRDIFF_MAX), ENOMEM);
	CHECK_NULL(memalign((size_t)1 << 60, 1), ENOMEM);
	CHECK_EQ(mallopt(M_MMAP_THRESHOLD, 1 << 20), 1);
	malloc_trim(0);
	pid_t pid = fork();
	if (!pid) {
		thread(NULL);
		exit(0);
	}
	CHECK_CHILD(pid);
	thread(NULL);
	fd = open("/dev/null", O_RDONLY);
	CHECK_EQ(fd, 3);
	close(fd);
	return 0;
}
