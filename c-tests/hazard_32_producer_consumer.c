/* One thread allocates, another frees. The freed blocks must come back to the one that allocates; else
 * memory grows for as long as the program runs. Also through a third hand, in batches, and when the
 * producer has long been idle. */
#include "check.h"

#include <pthread.h>
#include <sched.h>

enum { RING = 1024 };

struct ring {
	void *slot[RING];
	size_t head, tail;
};

static void put(struct ring *r, void *p)
{
	size_t head = r->head;
	while (head - __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE) == RING)
		sched_yield();
	r->slot[head % RING] = p;
	__atomic_store_n(&r->head, head + 1, __ATOMIC_RELEASE);
}

static void *take(struct ring *r)
{
	size_t tail = r->tail;
	while (tail == __atomic_load_n(&r->head, __ATOMIC_ACQUIRE))
		sched_yield();
	void *p = r->slot[tail % RING];
	__atomic_store_n(&r->tail, tail + 1, __ATOMIC_RELEASE);
	return p;
}

static struct ring first, second;
static size_t total;
static int by_relay;

static size_t size_of(size_t i)
{
	return i % 500 == 0 ? 200000 : i % 7 == 0 ? 5000 : i * 31 % 700 + 8;
}

static void *producer(void *unused)
{
	(void)unused;
	for (size_t i = 0; i < total; i++) {
		size_t *p = malloc(size_of(i));
		CHECK(p);
		*p = i;
		put(&first, p);
	}
	put(&first, NULL);
	return NULL;
}

static void *relay(void *unused)
{
	(void)unused;
	size_t *p;
	while ((p = take(&first)))
		put(&second, p);
	put(&second, NULL);
	return NULL;
}

static void *consumer(void *unused)
{
	(void)unused;
	size_t *p, i = 0;
	while ((p = take(by_relay ? &second : &first))) {
		CHECK_EQ(*p, i);
		free(p);
		i++;
	}
	CHECK_EQ(i, total);
	return NULL;
}

static void run(size_t n)
{
	pthread_t t[3];
	total = n;
	CHECK_EQ(pthread_create(&t[0], NULL, producer, NULL), 0);
	CHECK_EQ(pthread_create(&t[1], NULL, consumer, NULL), 0);
	if (by_relay)
		CHECK_EQ(pthread_create(&t[2], NULL, relay, NULL), 0);
	for (int i = 0; i < 2 + by_relay; i++)
		CHECK_EQ(pthread_join(t[i], NULL), 0);
}

/* The main thread allocates everything, threads free it all while main does nothing. */
static void *free_share(void *p)
{
	void **blocks = p;
	for (int i = 0; i < 5000; i++)
		free(blocks[i]);
	return NULL;
}

static void idle_owner(void)
{
	static void *blocks[4][5000];
	for (int round = 0; round < 6; round++) {
		pthread_t t[4];
		for (int k = 0; k < 4; k++)
			for (int i = 0; i < 5000; i++) {
				blocks[k][i] = malloc(600);
				CHECK(blocks[k][i]);
				memset(blocks[k][i], 1, 600);
			}
		for (int k = 0; k < 4; k++)
			CHECK_EQ(pthread_create(&t[k], NULL, free_share, blocks[k]), 0);
		for (int k = 0; k < 4; k++)
			CHECK_EQ(pthread_join(t[k], NULL), 0);
	}
}

int main(int argc, char **argv)
{
	size_t n = argc > 1 ? (size_t)atol(argv[1]) : 400000;
	for (by_relay = 0; by_relay < 2; by_relay++) {
		run(n / 8);
		size_t before = held_bytes();
		run(n);
		size_t after = held_bytes();
		/* At most 1,024 blocks (some hundred kilobytes; two rings) are ever alive. */
		if (after > before + 24 * MIB)
			FAIL("relay %d: %zu bytes held after %zu blocks, %zu after the next %zu", by_relay,
			     before, n / 8, after, n);
	}
	/* Others keep what is free for a while: what may not be is that it becomes ever more. */
	if (!under_test())
		idle_owner();
	size_t before = held_bytes();
	idle_owner();
	size_t after = held_bytes();
	/* One round is 12 MB. */
	if (after > before + 32 * MIB)
		FAIL("idle owner: %zu bytes before, %zu after six rounds of 12 MB", before, after);
	return 0;
}
