/* Blocks of another allocator (a plugin loaded with RTLD_DEEPBIND, memory from before the preload, an
 * embedded malloc) reach free, realloc and malloc_usable_size of this one. They go to whoever made
 * them; none is lost, none crashes. Argument 1: a plugin that allocates for us. */
#include "check.h"

#include <malloc.h>

#pragma GCC diagnostic ignored "-Wmismatched-dealloc"

static void *(*other_malloc)(size_t);
static void *(*other_calloc)(size_t, size_t);
static void *(*other_memalign)(size_t, size_t);
static size_t (*other_usable)(void *);
static struct mallinfo2 (*other_info)(void);

static size_t other_in_use(void)
{
	struct mallinfo2 m = other_info();
	return m.uordblks + m.hblkhd;
}

static void freed_where_it_was_made(void)
{
	enum { COUNT = 300 };
	static void *p[COUNT];
	size_t before = other_in_use();
	for (size_t i = 0; i < COUNT; i++) {
		size_t n = i * i * 3 + 1;
		p[i] = i % 3 == 0 ? other_malloc(n) : i % 3 == 1 ? other_calloc(1, n) : other_memalign(512, n);
		CHECK(p[i]);
		fill(p[i], n, i);
	}
	CHECK_GE(other_in_use(), before + 1000000);
	for (size_t i = 0; i < COUNT; i++) {
		CHECK_GE(malloc_usable_size(p[i]), i * i * 3 + 1);
		CHECK_EQ(malloc_usable_size(p[i]), other_usable(p[i]));
		if (under_test())
			CHECK_EQ(tier_of(p[i]), 0);
		CHECK_FILLED(p[i], i * i * 3 + 1, i);
		errno = 4711;
		free(p[i]);
		CHECK_EQ(errno, 4711);
	}
	/* glibc keeps some freed chunks in its thread cache, and counts them as in use. */
	CHECK_LE(other_in_use(), before + 200000);
}

static void reallocated(void)
{
	for (size_t n = 1; n < 3 * MIB; n = n * 3 + 1)
		for (int larger = 0; larger < 2; larger++) {
			char *p = other_malloc(n);
			fill(p, n, n);
			size_t to = larger ? n * 4 + 100 : n / 2 + 1;
			p = realloc(p, to);
			CHECK(p);
			CHECK_FILLED(p, to < n ? to : n, n);
			p = realloc(p, to + 10);
			CHECK_FILLED(p, to < n ? to : n, n);
			free(p);
			p = other_malloc(n);
			p = reallocarray(p, n, 2);
			CHECK(p);
			free(p);
			p = realloc(other_malloc(n), 0);
			CHECK(!p || !under_test());
			free(p);
		}
	char *p = other_malloc(100);
	fill(p, 100, 3);
	CHECK_NULL(realloc(p, (size_t)PTRDIFF_MAX + 1), ENOMEM);
	CHECK_FILLED(p, 100, 3);
	free(p);
}

/* Two ways to reach glibc's own names; the second is what old embedders call. */
static void with(void *handle, const char *prefix)
{
	char name[64];
	snprintf(name, sizeof name, "%smalloc", prefix);
	*(void **)&other_malloc = dlsym(handle, name);
	snprintf(name, sizeof name, "%scalloc", prefix);
	*(void **)&other_calloc = dlsym(handle, name);
	snprintf(name, sizeof name, "%smemalign", prefix);
	*(void **)&other_memalign = dlsym(handle, name);
	if (!other_malloc || !other_calloc || !other_memalign)
		FAIL("libc has no %s", name);
	freed_where_it_was_made();
	reallocated();
}

int main(int argc, char **argv)
{
	CHECK(argc > 1);
	/* The handle's own scope starts at libc, so it does not see the preloaded names. */
	void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
	CHECK(libc);
	*(void **)&other_usable = dlsym(libc, "malloc_usable_size");
	*(void **)&other_info = dlsym(libc, "mallinfo2");
	CHECK(other_usable && other_info);
	with(libc, "");
	with(libc, "__libc_");

	void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
	if (!plugin)
		FAIL("%s", dlerror());
	void *(*make)(size_t);
	*(void **)&make = dlsym(plugin, "plugin_make");
	CHECK(make);
	for (size_t n = 1; n < 500000; n = n * 2 + 1) {
		char *p = make(n);
		CHECK(p && !strcmp(p, n > 10 ? "plugin" : ""));
		if (n % 3)
			free(p);
		else
			free(realloc(p, n + 5000));
	}
	dlclose(plugin);
	return 0;
}
