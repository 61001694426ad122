/* A program that is linked with jemalloc, as Debian's redis-server is, below another preloaded allocator:
 * malloc is the preloaded one's, mallocx and its kin are jemalloc's unless the preloaded one has them too.
 * Blocks go from either side to the other. Linked with libjemalloc.so.2 by the driver. */
#include "check.h"

#include <malloc.h>

#pragma GCC diagnostic ignored "-Wmismatched-dealloc"

void *mallocx(size_t size, int flags);
void *rallocx(void *p, size_t size, int flags);
size_t sallocx(const void *p, int flags);
void dallocx(void *p, int flags);
void sdallocx(void *p, size_t size, int flags);
size_t nallocx(size_t size, int flags);
int mallctl(const char *name, void *old, size_t *old_size, void *new_value, size_t new_size);

int main(int argc, char **argv)
{
	Dl_info where;
	CHECK(argc > 1);
	CHECK(dladdr((void *)(uintptr_t)malloc, &where));
	if (!strcmp(argv[1], "preloaded") && strstr(where.dli_fname, "libjemalloc.so.2"))
		NOT_APPLICABLE("this is jemalloc itself");
	const char *version = NULL;
	size_t size = sizeof version;
	CHECK_EQ(mallctl("version", &version, &size, NULL, 0), 0);
	CHECK(version && version[0]);
	for (size_t n = 1; n < 3 * MIB; n = n * 3 + 5) {
		/* Redis: how much did I get? It reckons with nallocx, or with malloc_usable_size. */
		CHECK_GE(nallocx(n, 0), n);
		char *p = mallocx(n, 0);
		CHECK(p);
		CHECK_GE(malloc_usable_size(p), n);
		fill(p, n, n);
		p = realloc(p, n * 2);
		CHECK(p);
		CHECK_FILLED(p, n, n);
		free(p);
		free(mallocx(n, 0));

		p = malloc(n);
		CHECK(p);
		CHECK_GE(sallocx(p, 0), n);
		fill(p, n, n);
		p = rallocx(p, n * 2, 0);
		CHECK(p);
		CHECK_FILLED(p, n, n);
		dallocx(p, 0);
		sdallocx(malloc(n), n, 0);
	}
	return 0;
}
