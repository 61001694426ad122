/* Memory from every call of the malloc family is understood by every call that takes a block. A
 * library that forgets one entry point crashes in free, realloc or malloc_usable_size. */
#include "check.h"

#include <limits.h>
#include <malloc.h>

typedef void *maker(size_t n);

static void *by_malloc(size_t n) { return malloc(n); }
static void *by_calloc(size_t n) { return calloc(n, 1); }
static void *by_realloc(size_t n) { return realloc(NULL, n); }
static void *by_reallocarray(size_t n) { return reallocarray(NULL, n, 1); }
static void *by_aligned_alloc(size_t n) { return aligned_alloc(256, n); }
static void *by_memalign(size_t n) { return memalign(4096, n); }
static void *by_valloc(size_t n) { return valloc(n); }
static void *by_pvalloc(size_t n) { return pvalloc(n); }
static void *by_posix_memalign(size_t n)
{
	void *p = NULL;
	return posix_memalign(&p, 128, n) ? NULL : p;
}
static void *by_strndup(size_t n)
{
	char *text = malloc(n + 1), *copy;
	memset(text, 'x', n);
	text[n] = 0;
	copy = strndup(text, n);
	free(text);
	return copy;
}
static void *by_asprintf(size_t n)
{
	char *text;
	return asprintf(&text, "%*d", (int)n, 7) < 0 ? NULL : text;
}
static void *by_open_memstream(size_t n)
{
	char *text = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);
	for (size_t i = 0; i < n; i++)
		fputc('m', f);
	fclose(f);
	return text;
}
static void *by_getcwd(size_t n)
{
	return n < PATH_MAX ? by_malloc(n) : getcwd(NULL, n);
}

static maker *const makers[] = {
	by_malloc, by_calloc, by_realloc, by_reallocarray, by_aligned_alloc, by_memalign, by_valloc,
	by_pvalloc, by_posix_memalign, by_strndup, by_asprintf, by_open_memstream, by_getcwd,
};

int main(void)
{
	static const size_t sizes[] = {1, 24, 700, 5000, 70000, 3000000};
	for (size_t m = 0; m < sizeof makers / sizeof makers[0]; m++)
		for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
			size_t n = sizes[i];
			char *p = makers[m](n);
			if (!p)
				FAIL("maker %zu gave NULL for %zu bytes", m, n);
			CHECK_GE(malloc_usable_size(p), n);
			free(p);

			p = makers[m](n);
			fill(p, n, n);
			p = realloc(p, n * 2 + 1);
			CHECK(p);
			CHECK_FILLED(p, n, n);
			free(p);

			p = makers[m](n);
			fill(p, n, n);
			p = reallocarray(p, n / 2 + 1, 1);
			CHECK(p);
			CHECK_FILLED(p, n / 2, n);
			/* glibc frees and gives NULL; others give a block. */
			p = realloc(p, 0);
			CHECK(!p || !under_test());
			free(p);
		}
	return 0;
}
