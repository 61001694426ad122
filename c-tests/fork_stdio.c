/* fork beside threads that allocate while they hold stdio's locks. fork takes the lock of the list
 * of streams after the prepare handlers; a thread in fflush(NULL) holds it and allocates (the write
 * function of a stream of its own does, as open_memstream's), or waits for a stream whose holder
 * allocates (getline). An allocator that is closed by then must not be waited for. And the child of a
 * process of one thread finds the lock free: its threads use it. */
#include "check.h"

#include <pthread.h>

enum { FORKS = 150 };
static volatile int stop;
static FILE *lines;

static ssize_t write_and_allocate(void *cookie, const char *text, size_t n)
{
	(void)cookie;
	char *volatile block = malloc(600000);
	block[0] = text[0];
	free(block);
	return (ssize_t)n;
}

static void *flusher(void *arg)
{
	FILE *mine = fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_and_allocate});
	(void)arg;
	CHECK(mine);
	while (!stop) {
		fputs("hello", mine);
		fflush(NULL);
	}
	fclose(mine);
	return NULL;
}

static void *reader(void *arg)
{
	(void)arg;
	while (!stop) {
		rewind(lines);
		for (;;) {
			char *line = NULL;
			size_t room = 0;
			ssize_t n = getline(&line, &room, lines);
			free(line);
			if (n < 0)
				break;
		}
	}
	return NULL;
}

static void *open_and_close(void *arg)
{
	FILE *stream = fopen("/dev/null", "r");
	CHECK(stream && fclose(stream) == 0);
	return arg;
}

static void threads_of_a_child(void)
{
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		pthread_t thread;
		alarm(20);
		CHECK_EQ(pthread_create(&thread, NULL, open_and_close, NULL), 0);
		CHECK_EQ(pthread_join(thread, NULL), 0);
		_exit(0);
	}
	CHECK_CHILD(pid);
}

int main(void)
{
	/* A process that has not allocated yet has nothing that a fork must be kept from. */
	void *volatile block = malloc(100);
	free(block);
	threads_of_a_child();
	lines = tmpfile();
	CHECK(lines);
	for (int i = 0; i < 20; i++) {
		for (int k = 0; k < 20000 * (1 + i % 8); k++)
			fputc('x', lines);
		fputc('\n', lines);
	}
	pthread_t threads[2];
	CHECK_EQ(pthread_create(&threads[0], NULL, flusher, NULL), 0);
	CHECK_EQ(pthread_create(&threads[1], NULL, reader, NULL), 0);
	for (int i = 0; i < FORKS; i++) {
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (pid == 0) {
			/* The child may use stdio and the heap. */
			char *text = NULL;
			size_t n = 0;
			FILE *stream = open_memstream(&text, &n);
			fprintf(stream, "%d", i);
			fclose(stream);
			int right = atoi(text) == i;
			free(text);
			_exit(!right);
		}
		CHECK_CHILD(pid);
	}
	stop = 1;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	threads_of_a_child();
	fclose(lines);
	return 0;
}
