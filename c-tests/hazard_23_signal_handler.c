/* A profiler's or an interpreter's signal handler allocates while the interrupted thread is inside
 * malloc. No lock may be held across such a re-entry, and no block given out twice. Statistics may be
 * asked for from a handler at any moment, also while the interrupted thread prints them itself, or forks. Argument 1: seconds; argument 2: "malloc" or "report", what the
 * handler does. */
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

enum { KEPT = 64 };

static __thread struct {
	char *p;
	size_t n;
} kept[KEPT];
static __thread uint64_t handler_seed = 3;
static int handled;
static int (*stats_print)(void (*)(void *, const char *, size_t), void *, const char *);

static void ignore_text(void *opaque, const char *text, size_t n)
{
	(void)text;
	*(size_t *)opaque += n;
}

static int handler_allocates, stop;

static void report(const char *format)
{
	size_t written = 0;
	CHECK_EQ(stats_print(ignore_text, &written, format), 0);
	CHECK(written > 0);
}

/* The next signal 200 us after this handler: at a fixed interval a handler that takes longer than that, on a busy
 * machine, would leave the program no time of its own. */
static void once_more(void)
{
	struct itimerval soon = {{0, 0}, {0, 200}};
	if (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		setitimer(ITIMER_REAL, &soon, NULL);
}

static void handler(int number)
{
	(void)number;
	int saved = errno;
	for (int k = 0; k < 8 && handler_allocates; k++) {
		size_t i = rnd(&handler_seed) % KEPT;
		if (kept[i].p)
			CHECK_FILLED(kept[i].p, kept[i].n, i);
		free(kept[i].p);
		kept[i].n = rnd(&handler_seed) % 16 ? rnd(&handler_seed) % 600 + 1 : rnd(&handler_seed) % 100000 + 1;
		kept[i].p = malloc(kept[i].n);
		CHECK(kept[i].p);
		fill(kept[i].p, kept[i].n, i);
	}
	int n = __atomic_add_fetch(&handled, 1, __ATOMIC_RELAXED);
	if (stats_print && !handler_allocates && n % 5 == 0)
		report(n % 10 ? "json" : "text");
	once_more();
	errno = saved;
}

/* A child for a moment: file tiers have frozen segments from then on, which reports look through. */
static void fork_once(void)
{
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0)
		_exit(0);
	int status;
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
}

static double end;

/* Until `end`, or for 20 ms as number 9. */
static void *work(void *number)
{
	double until = (uintptr_t)number == 9 ? now() + 0.02 : end;
	enum { SLOTS = 256 };
	uint64_t seed = 11 + (uintptr_t)number;
	char *p[SLOTS] = {0};
	size_t n[SLOTS] = {0};
	for (size_t step = 0; step % 64 || now() < until; step++) {
		size_t i = rnd(&seed) % SLOTS;
		if (p[i])
			CHECK_FILLED(p[i], n[i], i);
		free(p[i]);
		n[i] = rnd(&seed) % 32 ? rnd(&seed) % 600 + 1 : rnd(&seed) % 100000 + 1;
		p[i] = malloc(n[i]);
		CHECK(p[i]);
		fill(p[i], n[i], i);
		if (stats_print && !handler_allocates && step % 256 == 0)
			report("text");
	}
	for (int i = 0; i < SLOTS; i++)
		free(p[i]);
	return NULL;
}

int main(int argc, char **argv)
{
	CHECK(argc > 2);
	handler_allocates = !strcmp(argv[2], "malloc");
	end = now() + atof(argv[1]);
	*(void **)&stats_print = library_symbol("tierheap_stats_print");
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
	CHECK_EQ(sigaction(SIGALRM, &action, NULL), 0);
	pthread_t t[2];
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, work, (void *)(uintptr_t)i), 0);
	once_more();
	/* The timer interrupts mostly this thread; the others get theirs from here. */
	while (now() < end || __atomic_load_n(&handled, __ATOMIC_RELAXED) <= 100) {
		work((void *)9);
		fork_once();
		for (int k = 0; k < 20 && now() < end; k++) {
			pthread_kill(t[k % 2], SIGALRM);
			usleep(100);
		}
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pthread_join(t[i], NULL), 0);
	CHECK_GE(handled, 100);
	return 0;
}
