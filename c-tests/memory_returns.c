/* Nine in ten blocks are freed here and there, and the process shrinks: at once by malloc_trim,
 * after a few seconds without it, also what a thread that has ended left behind. The blocks that
 * stay keep their contents, and what was given back can be used again.
 *
 * Block sizes are those of large values in a cache: several share a slab, so that hardly any slab
 * becomes wholly free. Under a policy that puts them into a file only their contents are checked:
 * a file's space is given back by whole slabs. */
#include "check.h"

#include <malloc.h>
#include <pthread.h>

enum { COUNT = 6000 };
static unsigned char *blocks[COUNT];
static size_t sizes[COUNT];
static uint64_t state = 88172645463325252u;

static size_t live(void)
{
	size_t sum = 0;
	for (int i = 0; i < COUNT; i++)
		sum += blocks[i] ? sizes[i] : 0;
	return sum;
}

static void fill_up(void)
{
	static const size_t some[] = {5000, 10300, 13000, 25000, 40000};
	for (int i = 0; i < COUNT; i++) {
		if (blocks[i])
			continue;
		sizes[i] = some[i % 5];
		blocks[i] = malloc(sizes[i]);
		CHECK(blocks[i]);
		fill(blocks[i], sizes[i], (uint64_t)i);
	}
}

static void thin_out(void)
{
	for (int i = 0; i < COUNT; i++)
		if (blocks[i] && rnd(&state) % 10 != 0) {
			free(blocks[i]);
			blocks[i] = NULL;
		}
}

static void verify(void)
{
	for (int i = 0; i < COUNT; i++)
		if (blocks[i])
			CHECK_EQ(broken_at(blocks[i], sizes[i], (uint64_t)i), sizes[i]);
}

/* What may stay: the live blocks, half as much again for the pages they share with free ones
 * (a block of 10,300 bytes touches up to four), and a little for the rest of the process. */
static size_t bound(void)
{
	return live() * 3 / 2 + 8 * MIB;
}

static int in_dram(void)
{
	for (int i = 0; i < COUNT; i++)
		if (blocks[i] && tier_of(blocks[i]) != 1)
			return 0;
	return 1;
}

static void *life(void *arg)
{
	(void)arg;
	fill_up();
	thin_out();
	return NULL;
}

int main(void)
{
	int strict;

	/* At once. */
	fill_up();
	strict = in_dram();
	size_t full = held_bytes();
	thin_out();
	malloc_trim(0);
	if (strict)
		CHECK_LE(held_bytes(), bound());
	verify();

	/* And again, with what was given back in use. */
	fill_up();
	verify();
	CHECK_LE(held_bytes(), full * 5 / 4);

	/* By and by, while the program does other things: some misses are needed to look. */
	thin_out();
	double end = now() + 20;
	while (strict && held_bytes() > bound() && now() < end)
		for (int i = 0; i < 200; i++) {
			/* Kept in sight, or the compiler drops the pair. */
			void *volatile other = malloc(3 * MIB);
			free(other);
			usleep(2000);
		}
	if (strict)
		CHECK_LE(held_bytes(), bound());
	verify();

	/* Of a thread that is gone. */
	pthread_t thread;
	CHECK_EQ(pthread_create(&thread, NULL, life, NULL), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	malloc_trim(0);
	if (strict)
		CHECK_LE(held_bytes(), bound());
	verify();

	for (int i = 0; i < COUNT; i++)
		free(blocks[i]);
	malloc_trim(0);
	if (strict)
		CHECK_LE(held_bytes(), 8 * MIB);
	return 0;
}
