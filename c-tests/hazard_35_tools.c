/* Run by the driver under gdb and under valgrind, and built with AddressSanitizer: the heap works or
 * stands down, it never hangs. Prints one line that the driver looks for. */
#include "check.h"

#include <pthread.h>

static void *work(void *number)
{
	uint64_t seed = 5 + (uintptr_t)number;
	char *p[100] = {0};
	size_t n[100] = {0};
	for (int step = 0; step < 3000; step++) {
		size_t i = rnd(&seed) % 100;
		if (p[i])
			CHECK_FILLED(p[i], n[i], i);
		free(p[i]);
		n[i] = rnd(&seed) % (step % 50 ? 500 : 200000) + 1;
		p[i] = malloc(n[i]);
		CHECK(p[i]);
		fill(p[i], n[i], i);
	}
	for (int i = 0; i < 100; i++)
		free(p[i]);
	return NULL;
}

int main(void)
{
	pthread_t t[2];
	work(NULL);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, work, (void *)(uintptr_t)(i + 1)), 0);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pthread_join(t[i], NULL), 0);
	pid_t pid = fork();
	CHECK(pid >= 0);
	/* Both at once with a heap in a shared file is row 13. */
	if (!pid || under_test())
		work(NULL);
	if (!pid)
		_exit(0);
	CHECK_CHILD(pid);
	puts("the tools let it work");
	return 0;
}
