/* At exit stdio flushes buffers that are blocks of the heap. A heap torn down before that loses the
 * output, and the program still ends with status 0. The driver compares every byte. */
#include "check.h"

static FILE *file;
static char *late;

static void at_exit(void)
{
	char *more = malloc(100000);
	CHECK(more);
	memset(more, 'h', 100000);
	more[99999] = '\n';
	fwrite(more, 1, 100000, stdout);
	printf("handler: %s\n", late);
	free(late);
}

__attribute__((destructor)) static void destructor(void)
{
	char *text = NULL;
	CHECK(asprintf(&text, "destructor %d\n", 7) > 0);
	fputs(text, stdout);
	free(text);
}

int main(int argc, char **argv)
{
	CHECK(argc > 1);
	size_t size = 300000;
	char *buffer = malloc(size);
	CHECK_EQ(setvbuf(stdout, buffer, _IOFBF, size), 0);
	file = fopen(argv[1], "w");
	CHECK(file);
	CHECK_EQ(setvbuf(file, malloc(100000), _IOFBF, 100000), 0);
	late = strdup("still there");
	atexit(at_exit);
	for (int i = 0; i < 9000; i++) {
		printf("line %d of the output\n", i);
		fprintf(file, "line %d of the file\n", i);
	}
	/* Neither stream is flushed or closed: exit does it. */
	return 0;
}
