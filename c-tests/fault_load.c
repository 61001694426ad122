/* A load whose system calls the driver makes fail: two threads allocate, grow, align and free, hand
 * blocks to each other, and verify every byte. A request may be refused (NULL and ENOMEM); nothing
 * else may go wrong. Waits for a line on stdin before it begins and says afterwards what it saw.
 *
 * With the argument "fork" a child verifies all of its parent's blocks now and then. */
#include "check.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>

enum { SLOTS = 400, STEPS = 6000, HANDED = 64 };

struct block {
	unsigned char *at;
	size_t size;
	uint64_t seed;
};

static struct block table[2][SLOTS];
static _Atomic(struct block *) handed[HANDED];
static atomic_size_t verified, refused;
static int forks;

static void verify(struct block *b)
{
	size_t good = broken_at(b->at, b->size, b->seed);
	if (good != b->size)
		FAIL("a block of %zu bytes is wrong from byte %zu on", b->size, good);
	verified++;
}

static void drop(struct block *b)
{
	if (!b->at)
		return;
	verify(b);
	free(b->at);
	b->at = NULL;
}

static size_t some_size(uint64_t *state)
{
	switch (rnd(state) % 10) {
	case 0:
		return 100000 + rnd(state) % 1500000;
	case 1:
	case 2:
		return 4000 + rnd(state) % 60000;
	default:
		return 1 + rnd(state) % 2000;
	}
}

static void make(struct block *b, uint64_t *state)
{
	b->size = some_size(state);
	b->seed = rnd(state);
	errno = 0;
	switch (rnd(state) % 8) {
	case 0:
		b->at = calloc(1, b->size);
		if (b->at && !all_zero(b->at, b->size))
			FAIL("calloc gave %zu bytes that are not zero", b->size);
		break;
	case 1:
		b->at = aligned_alloc(4096, b->size);
		break;
	default:
		b->at = malloc(b->size);
	}
	if (!b->at) {
		CHECK_EQ(errno, ENOMEM);
		refused++;
		return;
	}
	fill(b->at, b->size, b->seed);
}

static void grow(struct block *b, uint64_t *state)
{
	size_t size = some_size(state);
	verify(b);
	unsigned char *at = realloc(b->at, size);
	if (!at) {
		/* The old block is as it was; one that shrinks has no reason to fail. */
		CHECK_EQ(errno, ENOMEM);
		CHECK(size > b->size);
		verify(b);
		refused++;
		return;
	}
	size_t kept = size < b->size ? size : b->size;
	CHECK_EQ(broken_at(at, kept & ~(size_t)7, b->seed), kept & ~(size_t)7);
	b->at = at;
	b->size = size;
	fill(at, size, b->seed);
}

static void in_child(void)
{
	pid_t pid = fork();
	if (pid < 0)
		return;
	if (pid == 0) {
		/* The other thread's table may be half-written; this one's is not. */
		for (int i = 0; i < SLOTS; i++)
			if (table[0][i].at)
				verify(&table[0][i]);
		free(malloc(100));
		_exit(0);
	}
	CHECK_CHILD(pid);
}

static void *run(void *number)
{
	uintptr_t me = (uintptr_t)number;
	uint64_t state = 77 + me;
	for (int step = 0; step < STEPS; step++) {
		struct block *b = &table[me][rnd(&state) % SLOTS];
		switch (rnd(&state) % 6) {
		case 0:
			if (b->at)
				grow(b, &state);
			break;
		case 1: {
			/* To the other thread, by way of a block that says where. */
			struct block *note = malloc(sizeof *note);
			if (!note)
				break;
			*note = *b;
			b->at = NULL;
			struct block *old = atomic_exchange(&handed[rnd(&state) % HANDED], note);
			if (old) {
				drop(old);
				free(old);
			}
			break;
		}
		default:
			drop(b);
			make(b, &state);
		}
		if (me == 0 && forks && step % 1500 == 1499)
			in_child();
	}
	return NULL;
}

int main(int argc, char **argv)
{
	forks = argc > 1 && !strcmp(argv[1], "fork");
	char line[8];
	free(malloc(1));
	if (write(1, "ready\n", 6) != 6 || read(0, line, sizeof line) <= 0)
		FAIL("nobody at stdin");
	pthread_t other;
	/* Its stack is not the heap's affair. */
	int alone = pthread_create(&other, NULL, run, (void *)1);
	run((void *)0);
	if (!alone)
		pthread_join(other, NULL);
	for (int t = 0; t < 2; t++)
		for (int i = 0; i < SLOTS; i++)
			drop(&table[t][i]);
	for (int i = 0; i < HANDED; i++) {
		struct block *note = handed[i];
		if (note) {
			drop(note);
			free(note);
		}
	}
	malloc_trim(0);
	printf("verified %zu refused %zu\n", (size_t)verified, (size_t)refused);
	return 0;
}
