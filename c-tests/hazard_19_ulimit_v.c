/* Under a small `ulimit -v` the program starts, gets a fair part of its limit, is told NULL and ENOMEM
 * at the end of it, and goes on. Argument 1: the megabytes that must be reachable. */
#include "check.h"

#include <pthread.h>

static void *thread(void *unused)
{
	(void)unused;
	for (size_t i = 1; i < 200; i++) {
		char *p = malloc(i * 50);
		CHECK(p);
		memset(p, 1, i * 50);
		free(p);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	CHECK(argc > 1);
	size_t least = (size_t)atoi(argv[1]) * MIB, got = 0;
	pthread_attr_t small;
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 256 * KIB);
	for (int round = 0; round < 4; round++) {
		pthread_t t[4];
		for (int i = 0; i < 4; i++)
			CHECK_EQ(pthread_create(&t[i], &small, thread, NULL), 0);
		for (int i = 0; i < 4; i++)
			CHECK_EQ(pthread_join(t[i], NULL), 0);
	}
	static void *p[4000];
	for (int round = 0; round < 3; round++) {
		size_t count = 0, unit = round == 0 ? 100000 : round == 1 ? MIB : 200000;
		got = 0;
		while (count < 4000) {
			errno = 0;
			p[count] = malloc(unit);
			if (!p[count])
				break;
			memset(p[count], 1, 100);
			got += unit;
			count++;
		}
		CHECK_EQ(errno, ENOMEM);
		if (got < least)
			FAIL("round %d: %zu bytes reachable of at least %zu", round, got, least);
		CHECK_NULL(malloc(4 * GIB), ENOMEM);
		CHECK_NULL(calloc(1000, 4 * MIB), ENOMEM);
		while (count)
			free(p[--count]);
	}
	thread(NULL);
	return 0;
}
