/* Two copies of the library in one process: preloaded, and again under another path, as a second preload
 * or loaded late. One wins; the other is harmless, and works beside it for who calls it by its handle.
 * Blocks of either are freed by the names that the program sees, which is asked of tierheap only.
 * Argument 1: the path of the second copy. */
#include "check.h"

#include <malloc.h>
#include <pthread.h>

static void *(*copy_malloc)(size_t);
static void (*copy_free)(void *);
static int (*copy_tier_of)(const void *);

static void *work(void *unused)
{
	(void)unused;
	void *p[300], *q[300];
	for (size_t round = 0; round < 5; round++) {
		for (size_t i = 0; i < 300; i++) {
			size_t n = i * 113 % 20000 + 1;
			p[i] = malloc(n);
			q[i] = copy_malloc(n);
			CHECK(p[i] && q[i] && p[i] != q[i]);
			fill(p[i], n, i);
			fill(q[i], n, i + 1000);
		}
		for (size_t i = 0; i < 300; i++) {
			size_t n = i * 113 % 20000 + 1;
			CHECK_FILLED(p[i], n, i);
			CHECK_FILLED(q[i], n, i + 1000);
			free(p[i]);
			copy_free(q[i]);
		}
	}
	return NULL;
}

int main(int argc, char **argv)
{
	CHECK(argc > 1);
	void *copy = load_late(argv[1]);
	if (!copy)
		NOT_APPLICABLE("a copy cannot be loaded late (row 8): %s", dlerror());
	copy_malloc = late_malloc;
	copy_free = late_free;
	*(void **)&copy_tier_of = dlsym(copy, "tierheap_tier_of");
	CHECK(copy_tier_of || !under_test());
	/* Really two: the copy's calls are not the ones that the program is bound to. */
	CHECK((void *)copy_malloc != dlsym(RTLD_DEFAULT, "malloc"));
	work(NULL);
	pthread_t t[3];
	for (int i = 0; i < 3; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, work, NULL), 0);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(pthread_join(t[i], NULL), 0);
	/* Each knows its own. */
	void *own = malloc(1000), *theirs = copy_malloc(1000);
	if (under_test()) {
		CHECK_EQ(copy_tier_of(own), 0);
		CHECK_EQ(tier_of(theirs), 0);
	}
	/* A second preload is next in link order, so that its blocks find their way home from free. */
	if (getenv("COPY_IS_PRELOADED") && under_test()) {
		for (size_t n = 1; n < 300000; n = n * 3 + 1) {
			free(copy_malloc(n));
			char *p = copy_malloc(n);
			fill(p, n, n);
			CHECK_GE(malloc_usable_size(p), n);
			p = realloc(p, n + 70000);
			CHECK_FILLED(p, n, n);
			free(p);
		}
	}
	free(own);
	copy_free(theirs);
	if (!under_test())
		return 0; /* with a heap in a shared file the rest is row 13 */
	pid_t pid = fork();
	CHECK(pid >= 0);
	work(NULL);
	if (!pid)
		_exit(0);
	CHECK_CHILD(pid);
	return 0;
}
