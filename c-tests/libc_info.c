/* mallinfo, mallinfo2, mallopt, malloc_info, malloc_stats and malloc_trim: they answer, they answer
 * about this heap, and they may be called at any time. */
#include "check.h"

#include <malloc.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static void counts_follow_the_heap(void)
{
	enum { COUNT = 2000, SIZE = 10000 };
	static void *blocks[COUNT];
	size_t asked = (size_t)COUNT * SIZE;
	struct mallinfo2 before = mallinfo2();
	for (int i = 0; i < COUNT; i++) {
		blocks[i] = malloc(SIZE);
		memset(blocks[i], 1, SIZE);
	}
	struct mallinfo2 held = mallinfo2();
	size_t grown = held.uordblks + held.hblkhd - before.uordblks - before.hblkhd;
	CHECK_GE(grown, asked * 99 / 100);
	CHECK_LE(grown, asked * 5 / 4);
	CHECK_GE(held.arena + held.hblkhd, asked);
	struct mallinfo old = mallinfo();
	CHECK_EQ((unsigned)old.uordblks + (unsigned)old.hblkhd,
		 (unsigned)held.uordblks + (unsigned)held.hblkhd);
	for (int i = 0; i < COUNT; i++)
		free(blocks[i]);
	struct mallinfo2 after = mallinfo2();
	size_t left = after.uordblks + after.hblkhd - before.uordblks - before.hblkhd;
	CHECK_LE((long long)left, asked / 50);
}

static void options(void)
{
	CHECK_EQ(mallopt(M_MMAP_THRESHOLD, 1 << 20), 1);
	CHECK_EQ(mallopt(M_TRIM_THRESHOLD, 1 << 20), 1);
	CHECK_EQ(mallopt(M_ARENA_MAX, 2), 1);
	free(malloc(100));
}

/* A trim gives back what is free, and never what is in use. */
static void trim(void)
{
	enum { COUNT = 400 };
	char *kept[COUNT], *freed[COUNT];
	for (int i = 0; i < COUNT; i++) {
		kept[i] = malloc(1000);
		freed[i] = malloc(100000);
		fill(kept[i], 1000, (uint64_t)i);
		memset(freed[i], 2, 100000);
	}
	size_t full = held_bytes();
	for (int i = 0; i < COUNT; i++)
		free(freed[i]);
	int trimmed = malloc_trim(0);
	CHECK(trimmed == 0 || trimmed == 1);
	size_t left = held_bytes();
	if (left + COUNT * 100000 / 2 > full)
		FAIL("malloc_trim left %zu of %zu bytes in place", left, full);
	for (int i = 0; i < COUNT; i++) {
		CHECK_FILLED(kept[i], 1000, (uint64_t)i);
		free(kept[i]);
	}
	CHECK_GE(malloc_trim(1 << 20), 0);
}

static void reports(void)
{
	char *text = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);
	CHECK(f);
	CHECK_EQ(malloc_info(0, f), 0);
	CHECK_EQ(fclose(f), 0);
	CHECK(size > 10);
	CHECK(strstr(text, "<malloc") && strstr(text, "</malloc>"));
	free(text);
	CHECK(malloc_info(1, stdout) != 0);

	/* malloc_stats writes to stderr, and only there. */
	int pipe_ends[2], saved = dup(2);
	CHECK_EQ(pipe(pipe_ends), 0);
	CHECK_EQ(fcntl(pipe_ends[1], F_SETPIPE_SZ, 1 << 20) > 0, 1);
	CHECK_EQ(dup2(pipe_ends[1], 2), 2);
	close(pipe_ends[1]);
	malloc_stats();
	fflush(stderr);
	CHECK_EQ(dup2(saved, 2), 2);
	char got[4096];
	ssize_t n = read(pipe_ends[0], got, sizeof got);
	CHECK(n > 10);
	close(pipe_ends[0]);
	close(saved);
}

int main(void)
{
	counts_follow_the_heap();
	options();
	trim();
	reports();
	return 0;
}
