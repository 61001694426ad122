/* A full file system shows as SIGBUS at the first write to a sparse file, unless the space was
 * allocated before. And even then: where the page cache has large folios, the first write to a page takes
 * space for every hole of its folio, unless the mapping has no read-ahead that makes such folios. The driver
 * gives a tier on a tmpfs of 8 MiB and on a real file system of 64; this program asks for more.
 * Arguments: "falls-back" (every request is served, from DRAM in the end) or "strict" (NULL, ENOMEM), and the
 * size of the disk in MiB. */
#include "check.h"

static char *p[5000];
static size_t n[5000];

/* Sizes that leave a hole in each segment, all of them allocated before the first is written: no write may
 * find that its space went to a neighbour's hole. */
static void written_later(size_t disk)
{
	static char *large[100];
	for (size_t i = 0; i < disk; i++)
		large[i] = malloc(1400 * KIB);
	for (int round = 0; round < 2; round++)
		for (size_t i = 0; i < disk; i++) {
			if (!large[i])
				continue;
			if (round)
				CHECK_FILLED(large[i], 1400 * KIB, i);
			else
				fill(large[i], 1400 * KIB, i);
		}
	for (size_t i = 0; i < disk; i++)
		free(large[i]);
}

int main(int argc, char **argv)
{
	CHECK(argc > 2);
	size_t disk = (size_t)atoi(argv[2]), blocks = disk * 60;
	CHECK(disk <= 80);
	int strict = !strcmp(argv[1], "strict");
	uint64_t seed = 8;
	written_later(disk);
	for (int round = 0; round < 2; round++) {
		size_t served = 0, cold = 0, refused = 0;
		for (size_t i = 0; i < blocks; i++) {
			n[i] = rnd(&seed) % 160000 + 1;
			errno = 0;
			p[i] = i % 2 ? malloc(n[i]) : calloc(1, n[i]);
			if (!p[i]) {
				CHECK(strict);
				CHECK_EQ(errno, ENOMEM);
				refused++;
				continue;
			}
			fill(p[i], n[i], i);
			served += n[i];
			if (tier_of(p[i]) == 2)
				cold += n[i];
		}
		if (round == 0 && under_test()) {
			/* The tier was used, and used up. */
			CHECK_GE(cold, disk * MIB * 4 / 10);
			CHECK_LE(cold, disk * MIB);
			if (strict)
				CHECK_EQ(served, cold);
		}
		if (under_test() && strict)
			CHECK(refused > 0);
		/* A child on a full disk copies what it writes, and the copy needs no space there. */
		/* With a heap in a shared file that is row 13, so it is asked of tierheap only. */
		pid_t pid = under_test() ? fork() : getpid();
		CHECK(pid >= 0);
		for (size_t i = 0; i < blocks; i++) {
			if (!p[i])
				continue;
			CHECK_FILLED(p[i], n[i], i);
			fill(p[i], n[i], i + (pid ? 5000 : 9000));
			CHECK_FILLED(p[i], n[i], i + (pid ? 5000 : 9000));
		}
		if (!pid)
			_exit(0);
		if (under_test())
			CHECK_CHILD(pid);
		for (size_t i = 0; i < blocks; i++)
			free(p[i]);
		written_later(disk);
	}
	return 0;
}
