/* malloc and free after the thread's own teardown: destructors of thread-specific keys in every round,
 * also those that run after the library's; atexit handlers; threads that outlive main's return. And
 * what such a late call allocates must not leak with each thread. */
#include "check.h"

#include <pthread.h>

enum { KEYS = 40 };
static pthread_key_t keys[KEYS];
static int rounds_seen[PTHREAD_DESTRUCTOR_ITERATIONS + 1];

struct value {
	int round;
	size_t n;
	char *data;
};

static void destructor(void *p)
{
	struct value *v = p;
	CHECK_FILLED(v->data, v->n, 17);
	free(v->data);
	int round = ++v->round;
	__atomic_add_fetch(&rounds_seen[round], 1, __ATOMIC_RELAXED);
	v->n = v->n * 2 % 100000 + 1;
	v->data = malloc(v->n);
	CHECK(v->data);
	fill(v->data, v->n, 17);
	v->data = realloc(v->data, v->n + 5000);
	CHECK_FILLED(v->data, v->n, 17);
	if (round < PTHREAD_DESTRUCTOR_ITERATIONS) {
		/* Set again: one more round. */
		for (int i = 0; i < KEYS; i++)
			if (!pthread_getspecific(keys[i])) {
				CHECK_EQ(pthread_setspecific(keys[i], v), 0);
				return;
			}
	}
	free(v->data);
	free(v);
}

static void *thread(void *unused)
{
	(void)unused;
	/* Sets at both ends: glibc walks the keys in ascending order. */
	for (int i = 0; i < KEYS; i += KEYS - 1) {
		struct value *v = malloc(sizeof *v);
		*v = (struct value){.round = 0, .n = 3000, .data = malloc(3000)};
		fill(v->data, 3000, 17);
		CHECK_EQ(pthread_setspecific(keys[i], v), 0);
	}
	return NULL;
}

__attribute__((noreturn)) static void *outlives_main(void *unused)
{
	(void)unused;
	for (;;) {
		void *p = malloc(3000);
		free(p);
	}
}

static void at_exit(void)
{
	for (size_t n = 1; n < 5 * MIB; n = n * 3 + 1) {
		char *p = malloc(n);
		CHECK(p);
		memset(p, 1, n);
		free(p);
	}
}

static void run(int threads)
{
	for (int i = 0; i < threads; i++) {
		pthread_t t[2];
		for (int k = 0; k < 2; k++)
			CHECK_EQ(pthread_create(&t[k], NULL, thread, NULL), 0);
		for (int k = 0; k < 2; k++)
			CHECK_EQ(pthread_join(t[k], NULL), 0);
	}
}

int main(void)
{
	atexit(at_exit);
	for (int i = 0; i < KEYS; i++)
		CHECK_EQ(pthread_key_create(&keys[i], destructor), 0);
	run(60);
	size_t before = held_bytes();
	run(400);
	size_t after = held_bytes();
	/* A leak of one slab a thread would be fifty megabytes. */
	if (after > before + 16 * MIB)
		FAIL("held %zu bytes before 800 threads, %zu after", before, after);
	CHECK(rounds_seen[PTHREAD_DESTRUCTOR_ITERATIONS] > 0);
	pthread_t t;
	for (int i = 0; i < 3; i++)
		CHECK_EQ(pthread_create(&t, NULL, outlives_main, NULL), 0);
	return 0;
}
