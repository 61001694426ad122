/* fork with a heap in a shared file: the child must see exactly the parent's memory at the fork, and
 * neither may ever see a byte that the other writes later. Parent, two children alive at once and a
 * grandchild verify everything, overwrite everything, free and allocate, and verify again. */
#include "check.h"

enum { BLOCKS = 500 };

struct block {
	char *p;
	size_t n;
	uint64_t seed;
};
/* The table itself is on the heap, where the parent's and the child's copies must part as well. */
static struct block *blocks;

static void verify(const char *who)
{
	for (size_t i = 0; i < BLOCKS; i++) {
		size_t good = broken_at(blocks[i].p, blocks[i].n, blocks[i].seed);
		if (good != blocks[i].n)
			FAIL("%s: block %zu of %zu bytes at %p is wrong from byte %zu", who, i,
			     blocks[i].n, (void *)blocks[i].p, good);
	}
}

static void overwrite(uint64_t mark)
{
	for (size_t i = 0; i < BLOCKS; i++) {
		blocks[i].seed = mark * 1000003 + i;
		fill(blocks[i].p, blocks[i].n, blocks[i].seed);
	}
}

/* Frees, grows and allocates: new memory after a fork must not land in space the other still sees. */
static void rearrange(uint64_t mark)
{
	uint64_t seed = mark * 7919 + 1;
	for (size_t i = 0; i < BLOCKS; i++) {
		struct block *b = &blocks[i];
		switch (rnd(&seed) % 4) {
		case 0:
			free(b->p);
			b->n = rnd(&seed) % 8 ? rnd(&seed) % 20000 + 1 : rnd(&seed) % 400000 + 1;
			b->p = malloc(b->n);
			CHECK(b->p);
			fill(b->p, b->n, b->seed);
			break;
		case 1: {
			size_t n = rnd(&seed) % 30000 + 1, both = n < b->n ? n : b->n;
			b->p = realloc(b->p, n);
			CHECK(b->p);
			CHECK_FILLED(b->p, both, b->seed);
			b->n = n;
			fill(b->p, b->n, b->seed);
			break;
		}
		default:
			break;
		}
	}
}

static void signal_to(int fd)
{
	CHECK_EQ(write(fd, "x", 1), 1);
}

static void wait_for(int fd)
{
	char c;
	CHECK_EQ(read(fd, &c, 1), 1);
}

static void child(int from_parent, uint64_t mark)
{
	alarm(60);
	verify("child at the fork");
	/* Only now does the parent begin to overwrite; the child does the same at the same time. */
	overwrite(mark);
	verify("child after its own writes");
	wait_for(from_parent);
	verify("child after the parent's writes");
	rearrange(mark);
	verify("child after rearranging");
	pid_t grandchild = fork();
	CHECK(grandchild >= 0);
	if (!grandchild) {
		alarm(60);
		verify("grandchild at the fork");
		overwrite(mark + 100);
		rearrange(mark + 100);
		verify("grandchild after its own writes");
		_exit(0);
	}
	overwrite(mark + 200);
	rearrange(mark + 200);
	verify("child beside the grandchild");
	CHECK_CHILD(grandchild);
	verify("child after the grandchild");
	for (size_t i = 0; i < BLOCKS; i++)
		free(blocks[i].p);
	_exit(0);
}

int main(int argc, char **argv)
{
	uint64_t generations = argc > 1 ? (uint64_t)atoi(argv[1]) : 2;
	uint64_t seed = 4242;
	blocks = malloc(BLOCKS * sizeof *blocks);
	for (size_t i = 0; i < BLOCKS; i++) {
		blocks[i].n = i % 10 ? rnd(&seed) % 20000 + 1 : rnd(&seed) % 300000 + 1;
		blocks[i].p = i % 7 ? malloc(blocks[i].n) : calloc(1, blocks[i].n);
		CHECK(blocks[i].p);
	}
	for (uint64_t g = 1; g <= generations; g++) {
		pid_t pid[2];
		int pipes[2][2];
		overwrite(g);
		for (int c = 0; c < 2; c++) {
			CHECK_EQ(pipe(pipes[c]), 0);
			pid[c] = fork();
			CHECK(pid[c] >= 0);
			if (!pid[c])
				child(pipes[c][0], g * 10 + 5 + (uint64_t)c);
			/* Between the two forks the parent moves on: the snapshots differ. */
			overwrite(g * 10 + (uint64_t)c);
			rearrange(g * 10 + (uint64_t)c);
		}
		verify("parent after its own writes");
		for (int c = 0; c < 2; c++)
			signal_to(pipes[c][1]);
		rearrange(g + 50);
		for (int c = 0; c < 2; c++) {
			CHECK_CHILD(pid[c]);
			close(pipes[c][0]);
			close(pipes[c][1]);
		}
		verify("parent after the children");
	}
	for (size_t i = 0; i < BLOCKS; i++)
		free(blocks[i].p);
	free(blocks);
	return 0;
}
