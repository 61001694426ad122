/* calloc's memory is zero however often it was used before, in every size and every tier; and a
 * process never reads what another one wrote into the same space of a tier.
 *
 * As "former" it runs itself four times: as "fill" it leaves a secret in all the memory it can get, as
 * "scan" it looks for it. */
#include "check.h"

#include <malloc.h>

static const char secret[] = "Tr0ub4dor&3-secret-of-the-former-process";

static void fill_and_leave(void)
{
	for (int i = 0; i < 600; i++) {
		size_t n = i % 3 ? 4096 : 200000;
		char *p = malloc(n);
		CHECK(p);
		for (size_t at = 0; at + sizeof secret <= n; at += sizeof secret)
			memcpy(p + at, secret, sizeof secret);
		if (i % 5 == 0)
			free(p);
	}
}

static void scan(void)
{
	for (int i = 0; i < 600; i++) {
		size_t n = i % 3 ? 4096 : 200000;
		char *p = malloc(n);
		CHECK(p);
		if (memmem(p, n, secret, sizeof secret))
			FAIL("the former process's data is readable at %p", (void *)p);
	}
}

static void dirty_then_calloc(size_t n)
{
	enum { COUNT = 24 };
	void *p[COUNT];
	size_t count = n > MIB ? 3 : COUNT;
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < count; i++) {
			p[i] = malloc(n);
			CHECK(p[i]);
			memset(p[i], 0xa5, malloc_usable_size(p[i]));
		}
		for (size_t i = 0; i < count; i++)
			free(p[i]);
		for (size_t i = 0; i < count; i++) {
			p[i] = round % 2 ? calloc(n, 1) : calloc(1, n);
			CHECK(p[i]);
			if (!all_zero(p[i], n))
				FAIL("calloc(%zu), block %zu of round %d: not zero", n, i, round);
			memset(p[i], 0x5a, n);
		}
		/* Halves freed, so that new blocks land between used ones. */
		for (size_t i = 0; i < count; i += 2)
			free(p[i]);
		for (size_t i = 0; i < count; i += 2) {
			p[i] = calloc(1, n);
			CHECK(p[i]);
			if (!all_zero(p[i], n))
				FAIL("calloc(%zu), block %zu reused: not zero", n, i);
		}
		for (size_t i = 0; i < count; i++)
			free(p[i]);
	}
}

static void former_processes(void)
{
	for (int i = 0; i < 4; i++) {
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (!pid) {
			execl("/proc/self/exe", "hazard_37", i % 2 ? "scan" : "fill", (char *)NULL);
			_exit(9);
		}
		CHECK_CHILD(pid);
	}
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "former")) {
		former_processes();
		return 0;
	}
	if (argc > 1 && !strcmp(argv[1], "fill")) {
		fill_and_leave();
		return 0;
	}
	if (argc > 1 && !strcmp(argv[1], "scan")) {
		scan();
		return 0;
	}
	for (size_t n = 1; n <= 9 * MIB; n = n < 300 ? n + 21 : n * 3 / 2)
		dirty_then_calloc(n);
	return 0;
}
