/* malloc(0), and every call that comes to the same, gives a block that nobody else has: programs
 * take NULL for "memory exhausted", and some use the addresses as identities. */
#include "check.h"

#include <malloc.h>

enum { COUNT = 3000 };

static int by_address(const void *a, const void *b)
{
	uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
	return x < y ? -1 : x > y;
}

int main(void)
{
	static uintptr_t blocks[COUNT];
	size_t n = 0;
	while (n < COUNT) {
		blocks[n++] = (uintptr_t)malloc(0);
		blocks[n++] = (uintptr_t)calloc(0, 8);
		blocks[n++] = (uintptr_t)calloc(8, 0);
		blocks[n++] = (uintptr_t)realloc(NULL, 0);
		blocks[n++] = (uintptr_t)reallocarray(NULL, 0, 16);
		blocks[n++] = (uintptr_t)memalign(64, 0);
		blocks[n++] = (uintptr_t)aligned_alloc(32, 0);
		blocks[n++] = (uintptr_t)malloc(1);
		void *p = NULL;
		CHECK_EQ(posix_memalign(&p, 128, 0), 0);
		blocks[n++] = (uintptr_t)p;
		blocks[n++] = (uintptr_t)valloc(0);
	}
	for (size_t i = 0; i < COUNT; i++)
		if (!blocks[i])
			FAIL("request %zu of size 0 gave NULL", i);
	qsort(blocks, COUNT, sizeof blocks[0], by_address);
	for (size_t i = 1; i < COUNT; i++)
		if (blocks[i] == blocks[i - 1])
			FAIL("%#lx was given twice", (unsigned long)blocks[i]);
	for (size_t i = 0; i < COUNT; i++) {
		if (i % 2) {
			free((void *)blocks[i]);
		} else {
			void *p = realloc((void *)blocks[i], 100);
			CHECK(p);
			fill(p, 100, i);
			free(p);
		}
	}
	return 0;
}
