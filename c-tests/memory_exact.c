/* What the heap holds for aligned blocks is what was asked, not twice as much, and a limit on data
 * (RLIMIT_DATA counts writable private mappings) leaves most of itself to the program. */
#include "check.h"

#include <malloc.h>
#include <sys/resource.h>

static size_t held(void)
{
	struct mallinfo2 now = mallinfo2();
	return now.arena + now.hblkhd;
}

static void aligned(size_t alignment, size_t size, int count)
{
	void *blocks[100];
	CHECK_LE(count, 100);
	malloc_trim(0);
	size_t before = held();
	for (int i = 0; i < count; i++) {
		blocks[i] = aligned_alloc(alignment, size);
		CHECK_ALIGNED(blocks[i], alignment);
		CHECK_GE(malloc_usable_size(blocks[i]), size);
		fill(blocks[i], size, (uint64_t)i);
	}
	/* One slab or segment may be begun and not used up. */
	CHECK_LE(held() - before, count * size * 9 / 8 + 2 * MIB);
	for (int i = 0; i < count; i++) {
		CHECK_FILLED(blocks[i], size, (uint64_t)i);
		free(blocks[i]);
	}
	malloc_trim(0);
	CHECK_LE(held(), before + 2 * MIB);
}

static void under_limit(size_t limit)
{
	size_t got = 0;
	while (malloc(10000))
		got += 10000;
	CHECK_EQ(errno, ENOMEM);
	CHECK_GE(got, limit * 3 / 4);
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		under_limit(strtoull(argv[1], NULL, 10));
		return 0;
	}
	aligned(2 * MIB, 2 * MIB, 20);
	aligned(1 * MIB, 1 * MIB, 20);
	aligned(128 * KIB, 128 * KIB, 100);
	aligned(128 * KIB, 640 * KIB, 50);
	aligned(4 * MIB, 4 * MIB, 10);
	aligned(16 * MIB, 1 * MIB, 10);

	/* A file tier's memory is no data in the kernel's sense: only what is bounded can be shown. */
	if (tier_of(malloc(10000)) > 1)
		return 0;
	for (size_t limit = 20 * MIB; limit <= 100 * MIB; limit += 16 * MIB) {
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (pid == 0) {
			char text[32];
			struct rlimit bound = {limit, limit};
			snprintf(text, sizeof text, "%zu", limit);
			CHECK_EQ(setrlimit(RLIMIT_DATA, &bound), 0);
			execl("/proc/self/exe", argv[0], text, (char *)NULL);
			FAIL("exec");
		}
		CHECK_CHILD(pid);
	}
	return 0;
}
