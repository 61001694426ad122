/* A malloc tracer for hazard_09, as found on every other web page: it is preloaded before the
 * library, finds the next malloc by dlsym on its first call, and serves dlsym's own calloc from a
 * buffer. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void *(*next_malloc)(size_t);
static void *(*next_calloc)(size_t, size_t);
static void *(*next_realloc)(void *, size_t);
static void (*next_free)(void *);
static char buffer[65536] __attribute__((aligned(16)));
static size_t used;
static __thread int finding;

unsigned long tracer_calls;

static void find(void)
{
	if (next_free || finding)
		return;
	finding = 1;
	*(void **)&next_malloc = dlsym(RTLD_NEXT, "malloc");
	*(void **)&next_calloc = dlsym(RTLD_NEXT, "calloc");
	*(void **)&next_realloc = dlsym(RTLD_NEXT, "realloc");
	*(void **)&next_free = dlsym(RTLD_NEXT, "free");
	finding = 0;
}

static void *bump(size_t n)
{
	char *p = buffer + used;
	used += (n + 15) / 16 * 16;
	return used > sizeof buffer ? NULL : p;
}

void *malloc(size_t n)
{
	find();
	__atomic_add_fetch(&tracer_calls, 1, __ATOMIC_RELAXED);
	return next_malloc ? next_malloc(n) : bump(n);
}

void *calloc(size_t a, size_t b)
{
	find();
	return next_calloc ? next_calloc(a, b) : bump(a * b);
}

void *realloc(void *p, size_t n)
{
	find();
	if ((char *)p >= buffer && (char *)p < buffer + sizeof buffer) {
		void *q = malloc(n);
		if (q)
			memcpy(q, p, n);
		return q;
	}
	return next_realloc ? next_realloc(p, n) : bump(n);
}

void free(void *p)
{
	if ((char *)p >= buffer && (char *)p < buffer + sizeof buffer)
		return;
	find();
	if (next_free)
		next_free(p);
}
