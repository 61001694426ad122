/* malloc is called before the library's own constructor ran: from the program's .preinit_array, from
 * a constructor of the first priority, and, in the driver's second run, while an audit library
 * watches each symbol being bound. */
#include "check.h"

static void *early[3];

static void before_all(int argc, char **argv, char **environment)
{
	(void)argc;
	(void)argv;
	(void)environment;
	early[0] = malloc(5000);
	if (early[0])
		fill(early[0], 5000, 0);
	free(malloc(3000000));
}

__attribute__((section(".preinit_array"), used)) static void (*preinit)(int, char **, char **) = before_all;

__attribute__((constructor(101))) static void first(void)
{
	early[1] = calloc(3, 70000);
	CHECK(early[1]);
	fill(early[1], 210000, 1);
}

__attribute__((destructor(101))) static void last(void)
{
	void *p = malloc(400);
	CHECK(p);
	free(p);
	for (int i = 0; i < 3; i++)
		free(early[i]);
}

int main(void)
{
	CHECK(early[0]);
	early[2] = malloc(100);
	fill(early[2], 100, 2);
	CHECK_FILLED(early[0], 5000, 0);
	CHECK_FILLED(early[1], 210000, 1);
	early[0] = realloc(early[0], 20000);
	CHECK_FILLED(early[0], 5000, 0);
	return 0;
}
