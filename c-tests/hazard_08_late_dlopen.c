/* "cannot allocate memory in static TLS block": an initial-exec library draws on the little static
 * TLS that is left after start. Argument 1: a plugin with a kilobyte of it; argument 2, when there,
 * is the library, loaded late, after the plugin. Preloaded, the library must leave the plugin its
 * room; loaded late, it must do with the rest. */
#include "check.h"

#include <pthread.h>

static void *(*lib_malloc)(void *kind, size_t size);
static void (*lib_free)(void *p);

static void *work(void *unused)
{
	(void)unused;
	void *p[100];
	for (int i = 0; i < 100; i++) {
		p[i] = lib_malloc ? lib_malloc(NULL, 500) : malloc(500);
		CHECK(p[i]);
		fill(p[i], 500, (uint64_t)i);
	}
	for (int i = 0; i < 100; i++) {
		CHECK_FILLED(p[i], 500, (uint64_t)i);
		if (lib_free)
			lib_free(p[i]);
		else
			free(p[i]);
	}
	return NULL;
}

static void threads(void)
{
	pthread_t t[8];
	for (int i = 0; i < 8; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, work, NULL), 0);
	for (int i = 0; i < 8; i++)
		CHECK_EQ(pthread_join(t[i], NULL), 0);
}

int main(int argc, char **argv)
{
	CHECK(argc > 1);
	work(NULL);
	threads();
	void *plugin = dlopen(argv[1], RTLD_NOW);
	if (!plugin)
		FAIL("%s", dlerror());
	int (*tls)(int);
	*(void **)&tls = dlsym(plugin, "plugin_tls");
	CHECK(tls && tls(42) == 42);
	if (argc > 2) {
		void *library = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
		if (!library)
			FAIL("%s", dlerror());
		*(void **)&lib_malloc = dlsym(library, "tierheap_malloc");
		*(void **)&lib_free = dlsym(library, "tierheap_free");
		CHECK(lib_malloc && lib_free);
	}
	work(NULL);
	threads();
	CHECK(tls(17) == 17);
	return 0;
}
