/* A process may have 65,530 mappings. A heap must not spend them, and when the program has spent them
 * free still works (an unmap that would split a mapping fails with ENOMEM), and so does memory that
 * the heap already has. */
#include "check.h"

#include <sys/mman.h>

enum { BLOCKS = 6000 };
static char *p[BLOCKS];
static size_t n[BLOCKS];

static size_t size_of(size_t i)
{
	static const size_t sizes[] = {100, 5000, 70000, 20000, 130000, 1000, 300000, 40};
	return sizes[i % 8];
}

int main(void)
{
	size_t before = mappings();
	for (size_t i = 0; i < BLOCKS; i++) {
		n[i] = size_of(i);
		p[i] = malloc(n[i]);
		CHECK(p[i]);
		p[i][0] = p[i][n[i] - 1] = 1;
	}
	for (size_t i = 0; i < BLOCKS; i += 2) {
		free(p[i]);
		p[i] = NULL;
	}
	for (size_t i = 0; i < BLOCKS; i += 4) {
		n[i] = size_of(i * 7 + 3);
		p[i] = malloc(n[i]);
		CHECK(p[i]);
		p[i][0] = p[i][n[i] - 1] = 1;
	}
	if (under_test())
		CHECK_LE(mappings(), before + 1000);

	/* The program takes all that is left: pages of alternating protection do not merge. */
	char *room = mmap(NULL, 80000 * 4096UL, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(room != MAP_FAILED);
	size_t pages = 0;
	while (pages < 80000 && !mprotect(room + pages * 4096, 4096, PROT_READ))
		pages += 2;
	CHECK(pages < 80000);
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < BLOCKS; i++) {
			if (p[i])
				CHECK(p[i][0] == 1 && p[i][n[i] - 1] == 1);
			free(p[i]);
			p[i] = NULL;
		}
		size_t served = 0;
		for (size_t i = 0; i < BLOCKS; i++) {
			n[i] = size_of(i + (size_t)round);
			errno = 0;
			p[i] = malloc(n[i]);
			if (p[i]) {
				p[i][0] = p[i][n[i] - 1] = 1;
				served++;
			} else {
				CHECK_EQ(errno, ENOMEM);
			}
		}
		/* What was just freed is there to be used: no new mapping is needed for most of it. */
		CHECK_GE(served, under_test() ? BLOCKS / 4 : BLOCKS / 8);
	}
	CHECK_EQ(munmap(room, 80000 * 4096UL), 0);
	for (size_t i = 0; i < BLOCKS; i++) {
		if (!p[i])
			p[i] = malloc(n[i]);
		CHECK(p[i]);
	}
	for (size_t i = 0; i < BLOCKS; i++)
		free(p[i]);
	return 0;
}
