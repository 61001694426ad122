/* Start-up that turns in circles: dlsym callocs its error buffer while a tracer looks for calloc;
 * pthread_setspecific callocs for a high key while a thread binds its heap; dlerror frees at thread
 * exit. The driver runs it plain, and below a tracer that finds malloc by dlsym. */
#include "check.h"

#include <pthread.h>

enum { KEYS = 300 };

static pthread_key_t keys[KEYS];
static int destroyed;

static void destructor(void *p)
{
	__atomic_add_fetch(&destroyed, 1, __ATOMIC_RELAXED);
	free(p);
}

static void *thread(void *unused)
{
	(void)unused;
	/* The first thing this thread does is to make glibc allocate for a high key. */
	CHECK_EQ(pthread_setspecific(keys[KEYS - 1], (void *)1), 0);
	CHECK_EQ(pthread_setspecific(keys[KEYS - 1], NULL), 0);
	for (int i = 0; i < KEYS; i++)
		CHECK_EQ(pthread_setspecific(keys[i], malloc((size_t)i + 1)), 0);
	CHECK(!dlsym(RTLD_DEFAULT, "no_such_name_anywhere"));
	CHECK(dlerror());
	CHECK(!dlopen("no_such_library.so", RTLD_NOW));
	CHECK(dlerror());
	return NULL;
}

int main(void)
{
	CHECK(!dlsym(RTLD_NEXT, "no_such_name"));
	CHECK(dlerror());
	for (int i = 0; i < KEYS; i++)
		CHECK_EQ(pthread_key_create(&keys[i], destructor), 0);
	for (int round = 0; round < 20; round++) {
		pthread_t t[4];
		for (int i = 0; i < 4; i++)
			CHECK_EQ(pthread_create(&t[i], NULL, thread, NULL), 0);
		for (int i = 0; i < 4; i++)
			CHECK_EQ(pthread_join(t[i], NULL), 0);
	}
	CHECK_EQ(destroyed, 20 * 4 * KEYS);
	unsigned long *calls = dlsym(RTLD_DEFAULT, "tracer_calls");
	if (getenv("EXPECT_TRACER"))
		CHECK(calls && *calls > KEYS);
	return 0;
}
