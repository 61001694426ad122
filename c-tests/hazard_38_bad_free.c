/* Double frees and frees of pointers into a block are found, not obeyed: each case runs in a child that
 * must die by SIGABRT with a message on stderr that names the pointer. With argument "harmless" (the
 * configuration says abort=0) the child must go on instead, with a heap that is still sound. Of another
 * allocator either is accepted, and any message: what fails is a heap that is corrupt and silent. */
#include "check.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

/* Through pointers that the compiler cannot see through: it knows what free does. */
static void (*volatile bad_free)(void *) = free;
static void *(*volatile bad_realloc)(void *, size_t) = realloc;

static void *victim;
static size_t victim_size;
static void *others[600];
/* The pointer that the message must name, told by the child through a shared page. */
static uintptr_t *named;

static void allocate(void)
{
	for (int i = 0; i < 300; i++)
		others[i] = i % (int)(victim_size / 100000 + 1) ? NULL : malloc(victim_size);
	victim = malloc(victim_size);
	CHECK(victim);
	*named = (uintptr_t)victim;
	for (int i = 300; i < 600; i++)
		others[i] = i % (int)(victim_size / 100000 + 1) ? NULL : malloc(victim_size);
}

static void twice(void)
{
	bad_free(victim);
	bad_free(victim);
}

static void twice_with_others_between(void)
{
	bad_free(victim);
	for (int i = 250; i < 350; i++) {
		free(others[i]);
		others[i] = NULL;
	}
	bad_free(victim);
}

static void reallocated_after_free(void)
{
	bad_free(victim);
	bad_realloc(victim, victim_size * 2);
}

static void at(size_t offset)
{
	*named = (uintptr_t)victim + offset;
	bad_free((char *)victim + offset);
}

static void interior_1(void) { at(1); }
static void interior_8(void) { at(8); }
static void interior_16(void) { at(16); }
static void interior_half(void) { at(victim_size / 2 & ~(size_t)15); }
static void interior_4096(void) { at(4096); }
static void interior_64k(void) { at(64 * KIB); }
static void interior_2m(void) { at(2 * MIB); }

static void realloc_interior(void)
{
	*named = (uintptr_t)victim + 16;
	bad_realloc((char *)victim + 16, 50);
}

/* The owner notices when it takes back what another thread gave. */
static void *free_it(void *p)
{
	bad_free(p);
	return NULL;
}

static void twice_by_another_thread(void)
{
	for (int i = 0; i < 2; i++) {
		pthread_t t;
		CHECK_EQ(pthread_create(&t, NULL, free_it, victim), 0);
		CHECK_EQ(pthread_join(t, NULL), 0);
	}
	static void *p[4000];
	for (int i = 0; i < 4000; i++)
		p[i] = malloc(victim_size);
	for (int i = 0; i < 4000; i++)
		free(p[i]);
}

static const struct {
	const char *name;
	void (*run)(void);
	size_t least, most;
} cases[] = {
	{"double free", twice, 0, SIZE_MAX},
	{"double free with others between", twice_with_others_between, 0, SIZE_MAX},
	{"realloc after free", reallocated_after_free, 0, SIZE_MAX},
	{"pointer + 1", interior_1, 0, SIZE_MAX},
	{"pointer + 8", interior_8, 0, SIZE_MAX},
	{"pointer + 16", interior_16, 32, SIZE_MAX},
	{"middle", interior_half, 64, SIZE_MAX},
	{"pointer + 4096", interior_4096, 8192, SIZE_MAX},
	{"pointer + 64 KiB", interior_64k, 128 * KIB, SIZE_MAX},
	{"pointer + 2 MiB", interior_2m, 4 * MIB, SIZE_MAX},
	{"realloc of pointer + 16", realloc_interior, 32, SIZE_MAX},
	{"double free by another thread", twice_by_another_thread, 0, 20000},
};

/* After a refused free no block may be given out twice, and none that is in use. */
static void still_sound(void)
{
	static char *p[2000];
	for (int i = 0; i < 2000; i++) {
		p[i] = malloc(victim_size);
		CHECK(p[i]);
		fill(p[i], victim_size < 64 ? victim_size : 64, (uint64_t)i);
		if (victim_size > MIB && i == 20)
			break;
	}
	for (int i = 0; i < 2000 && p[i]; i++)
		CHECK_FILLED(p[i], victim_size < 64 ? victim_size : 64, (uint64_t)i);
}

static int run_case(size_t c, int harmless)
{
	int ends[2], broken = 0;
	CHECK_EQ(pipe(ends), 0);
	allocate();
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		alarm(20);
		CHECK_EQ(dup2(ends[1], 2), 2);
		close(ends[0]);
		close(ends[1]);
		cases[c].run();
		if (harmless || !under_test())
			still_sound();
		_exit(77);
	}
	close(ends[1]);
	char text[4096] = "", *at = text;
	ssize_t n;
	while ((n = read(ends[0], at, sizeof text - 1 - (size_t)(at - text))) > 0)
		at += n;
	close(ends[0]);
	int status;
	CHECK_EQ(waitpid(pid, &status, 0), pid);

	char pointer[32];
	snprintf(pointer, sizeof pointer, "%lx", (unsigned long)*named);
	const char *wrong = NULL;
	if (!under_test()) {
		int goes_on = WIFEXITED(status) && WEXITSTATUS(status) == 77;
		int aborts = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
		if (!goes_on && !aborts)
			wrong = WIFSIGNALED(status) ? "killed by another signal than SIGABRT" : "a corrupt heap";
	} else if (harmless) {
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 77)
			wrong = "the child did not go on";
	} else if (WIFEXITED(status)) {
		wrong = WEXITSTATUS(status) == 77 ? "not detected" : "the child's own check failed";
	} else if (WTERMSIG(status) != SIGABRT) {
		wrong = "killed by another signal than SIGABRT";
	} else if (!strstr(text, pointer)) {
		wrong = "the message does not name the pointer";
	}
	if (wrong) {
		fprintf(stderr, "%s: %s, blocks of %zu at %p: %s (status %#x)\n%s", __FILE__, cases[c].name,
			victim_size, victim, wrong, (unsigned)status, text);
		broken = 1;
	}
	free(victim);
	for (int i = 0; i < 600; i++)
		free(others[i]);
	return broken;
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = {16, 48, 100, 1000, 5000, 20000, 300000, 3 * MIB, 9 * MIB};
	int harmless = argc > 1 && !strcmp(argv[1], "harmless"), broken = 0, tried = 0;
	named = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(named != MAP_FAILED);
	for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
		for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
			victim_size = sizes[s];
			if (victim_size < cases[c].least || victim_size > cases[c].most)
				continue;
			tried++;
			broken += run_case(c, harmless);
		}
	if (broken)
		FAIL("%d of %d cases", broken, tried);
	return 0;
}
