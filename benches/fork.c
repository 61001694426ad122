/* fork_time GIB BLOCK ROUNDS: fills GIB of blocks, then forks ROUNDS times. Prints for each round
 * the microseconds that fork took in the parent, those until the child (which reads one word of
 * every hundredth block and exits) was gone, and those of writing one word of every block
 * afterwards: what fork puts off is paid then. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return fprintf(stderr, "usage: fork_time GIB BLOCK ROUNDS\n"), 2;
	size_t block = strtoull(argv[2], NULL, 10);
	size_t n = (size_t)(strtod(argv[1], NULL) * (1u << 30)) / block;
	uint64_t **blocks = malloc(n * sizeof *blocks);
	for (size_t i = 0; i < n; i++) {
		blocks[i] = malloc(block);
		if (!blocks[i])
			return fprintf(stderr, "no memory after %zu blocks\n", i), 1;
		memset(blocks[i], 1, block);
		blocks[i][0] = i;
	}
	for (int round = 0; round < atoi(argv[3]); round++) {
		double before = now();
		pid_t child = fork();
		if (child < 0)
			return perror("fork"), 1;
		if (child == 0) {
			for (size_t i = 0; i < n; i += 100)
				if (blocks[i][0] != i + (size_t)round * n)
					_exit(1);
			_exit(0);
		}
		double forked = now();
		int status;
		if (waitpid(child, &status, 0) != child || status != 0)
			return fprintf(stderr, "the child saw other contents\n"), 1;
		double gone = now();
		for (size_t i = 0; i < n; i++)
			blocks[i][0] += n;
		printf("%.0f %.0f %.0f\n", forked - before, gone - before, now() - gone);
	}
	return 0;
}
