/* At exit stdio flushes buffers that are blocks of the heap. A heap torn down before that loses the
 * output, and the program still ends with status 0. The program runs itself with stdout in a file, and
 * compares every byte that came through, there and in a file of its own, with what was written. */
#include "check.h"

#include <sys/mman.h>

enum { LINES = 9000, HANDLER = 100000 };

static char *late;

/* ---- the program whose output may get lost ---- */

static void at_exit(void)
{
	char *more = malloc(HANDLER);
	CHECK(more);
	memset(more, 'h', HANDLER);
	more[HANDLER - 1] = '\n';
	fwrite(more, 1, HANDLER, stdout);
	printf("handler: %s\n", late);
	free(late);
}

static int writes;

__attribute__((destructor)) static void destructor(void)
{
	char *text = NULL;
	if (!writes)
		return;
	CHECK(asprintf(&text, "destructor %d\n", 7) > 0);
	fputs(text, stdout);
	free(text);
}

static int program(const char *path)
{
	size_t size = 300000;
	char *buffer = malloc(size);
	CHECK_EQ(setvbuf(stdout, buffer, _IOFBF, size), 0);
	FILE *file = fopen(path, "w");
	CHECK(file);
	CHECK_EQ(setvbuf(file, malloc(100000), _IOFBF, 100000), 0);
	late = strdup("still there");
	writes = 1;
	atexit(at_exit);
	for (int i = 0; i < LINES; i++) {
		printf("line %d of the output\n", i);
		fprintf(file, "line %d of the file\n", i);
	}
	/* Neither stream is flushed or closed: exit does it. */
	return 0;
}

/* ---- the program that looks, without stdio's buffers ---- */

static void expect(const char **at, const char *end, const char *text, size_t n)
{
	if ((size_t)(end - *at) < n)
		FAIL("%zu bytes of the output are lost", n - (size_t)(end - *at));
	CHECK(!memcmp(*at, text, n));
	*at += n;
}

static const char *whole(int fd, const char **end)
{
	struct stat st;
	CHECK_EQ(fstat(fd, &st), 0);
	CHECK(st.st_size > 0);
	const char *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	*end = p + st.st_size;
	return p;
}

static void lines(const char **at, const char *end, const char *what)
{
	for (int i = 0; i < LINES; i++) {
		char line[64];
		int n = snprintf(line, sizeof line, "line %d of the %s\n", i, what);
		expect(at, end, line, (size_t)n);
	}
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return program(argv[1]);
	int out = memfd_create("out", 0), file = memfd_create("file", 0);
	CHECK(out >= 0 && file >= 0);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		char path[32];
		snprintf(path, sizeof path, "/proc/self/fd/%d", file);
		dup2(out, 1);
		execl("/proc/self/exe", argv[0], path, (char *)NULL);
		_exit(9);
	}
	CHECK_CHILD(pid);
	const char *end, *at = whole(out, &end);
	static char handler[HANDLER];
	memset(handler, 'h', sizeof handler - 1);
	handler[sizeof handler - 1] = '\n';
	lines(&at, end, "output");
	expect(&at, end, handler, sizeof handler);
	expect(&at, end, "handler: still there\n", 21);
	expect(&at, end, "destructor 7\n", 13);
	CHECK(at == end);
	at = whole(file, &end);
	lines(&at, end, "file");
	CHECK(at == end);
	return 0;
}
