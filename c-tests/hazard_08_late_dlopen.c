/* "cannot allocate memory in static TLS block": an initial-exec library draws on the little static
 * TLS that is left after start. Argument 1: a plugin with a kilobyte of it; argument 2, when there,
 * is the library, loaded late, after the plugin. Preloaded, the library must leave the plugin its
 * room; loaded late, it must do with the rest. */
#include "check.h"

#include <pthread.h>

static void *work(void *unused)
{
	(void)unused;
	void *p[100];
	for (int i = 0; i < 100; i++) {
		p[i] = late_malloc ? late_malloc(500) : malloc(500);
		CHECK(p[i]);
		fill(p[i], 500, (uint64_t)i);
	}
	for (int i = 0; i < 100; i++) {
		CHECK_FILLED(p[i], 500, (uint64_t)i);
		if (late_free)
			late_free(p[i]);
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
	if (argc > 2 && !load_late(argv[2]))
		FAIL("%s", dlerror());
	work(NULL);
	threads();
	CHECK(tls(17) == 17);
	return 0;
}
