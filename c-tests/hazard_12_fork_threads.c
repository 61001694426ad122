/* fork while other threads are inside malloc: the child has one thread and every lock as it stood at
 * that moment. It must still allocate, free what others allocated, start threads and fork again. */
#include "check.h"

#include <pthread.h>

enum { THREADS = 4, SLOTS = 64 };

static struct slot {
	pthread_mutex_t lock;
	void *p;
	size_t n;
} slots[SLOTS];
static int stop;

static void *churn(void *number)
{
	uint64_t seed = 77 + (uintptr_t)number;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		size_t n = rnd(&seed) % 64 ? rnd(&seed) % 5000 + 1 : rnd(&seed) % 900000 + 1;
		char *p = malloc(n);
		CHECK(p);
		fill(p, n < 256 ? n : 256, (uintptr_t)p);
		/* Freed by whoever comes by, so that remote frees are under way too. */
		struct slot *s = &slots[rnd(&seed) % SLOTS];
		pthread_mutex_lock(&s->lock);
		void *old = s->p;
		size_t old_n = s->n;
		s->p = p;
		s->n = n;
		pthread_mutex_unlock(&s->lock);
		if (old)
			CHECK_FILLED(old, old_n < 256 ? old_n : 256, (uintptr_t)old);
		free(old);
	}
	return NULL;
}

static void *short_work(void *unused)
{
	(void)unused;
	for (int i = 0; i < 200; i++) {
		char *p = malloc((size_t)i * 37 + 1);
		CHECK(p);
		memset(p, 1, (size_t)i * 37 + 1);
		free(p);
	}
	return NULL;
}

static void child(int depth)
{
	alarm(30);
	stop = 1;
	for (int i = 0; i < SLOTS; i++) {
		/* A slot that a thread held at the fork stays held for ever: leave it. */
		if (pthread_mutex_trylock(&slots[i].lock))
			continue;
		void *p = slots[i].p;
		size_t n = slots[i].n;
		if (p)
			CHECK_FILLED(p, n < 256 ? n : 256, (uintptr_t)p);
		free(p);
		slots[i].p = NULL;
		pthread_mutex_unlock(&slots[i].lock);
	}
	short_work(NULL);
	pthread_t t[2];
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, short_work, NULL), 0);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pthread_join(t[i], NULL), 0);
	if (depth) {
		pid_t grandchild = fork();
		CHECK(grandchild >= 0);
		if (!grandchild) {
			short_work(NULL);
			_exit(0);
		}
		CHECK_CHILD(grandchild);
	}
	/* Some children leave by exit, with its handlers. */
	if (depth)
		exit(0);
	_exit(0);
}

int main(int argc, char **argv)
{
	int forks = argc > 1 ? atoi(argv[1]) : 15;
	pthread_t t[THREADS];
	for (int i = 0; i < SLOTS; i++)
		pthread_mutex_init(&slots[i].lock, NULL);
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, churn, (void *)(uintptr_t)i), 0);
	for (int i = 0; i < forks; i++) {
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (!pid)
			child(i % 3 == 0);
		CHECK_CHILD(pid);
		short_work(NULL);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_join(t[i], NULL), 0);
	for (int i = 0; i < SLOTS; i++)
		free(slots[i].p);
	return 0;
}
