/* Forks that are called from odd places: by a signal handler that has interrupted malloc (in a
 * program of one thread, where glibc's own heap takes no lock either), and by the bare system call
 * after an ordinary fork. The first must not hang; a child of the second sees its parent's memory
 * or, of a file tier, has none of it: it never sees other contents. */
#include "check.h"

#include <signal.h>
#include <sys/time.h>

static volatile sig_atomic_t forks;

static void fork_now(int number)
{
	int saved = errno;
	(void)number;
	pid_t pid = fork();
	if (pid == 0)
		_exit(0);
	int status;
	if (pid > 0 && (waitpid(pid, &status, 0) != pid || status != 0))
		FAIL("the child ended with %#x", status);
	forks++;
	errno = saved;
}

static void in_a_handler(void)
{
	static char *blocks[300];
	struct sigaction action = {.sa_handler = fork_now, .sa_flags = SA_RESTART};
	struct itimerval every = {{0, 4000}, {0, 4000}}, never = {{0, 0}, {0, 0}};
	uint64_t state = 5;
	CHECK_EQ(sigaction(SIGALRM, &action, NULL), 0);
	CHECK_EQ(setitimer(ITIMER_REAL, &every, NULL), 0);
	/* Mostly slow paths, which is where a handler interrupts something. */
	for (double end = now() + 4; forks < 200 && now() < end;) {
		char **b = &blocks[rnd(&state) % 300];
		size_t n = rnd(&state) % 8 ? 600000 + rnd(&state) % 900000 : 1 + rnd(&state) % 3000;
		free(*b);
		*b = malloc(n);
		CHECK(*b);
		**b = (char)n;
	}
	CHECK_EQ(setitimer(ITIMER_REAL, &never, NULL), 0);
	CHECK_GE(forks, 20);
	for (int i = 0; i < 300; i++)
		free(blocks[i]);
}

static void past_the_handlers(void)
{
	enum { SIZE = 4 << 20 };
	char *block = malloc(SIZE), word;
	int pipes[2];
	CHECK(block && pipe(pipes) == 0);
	memset(block, 'A', SIZE);
	pid_t pid = fork();
	if (pid == 0)
		_exit(0);
	CHECK_CHILD(pid);
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	CHECK(pid >= 0);
	if (pid == 0) {
		/* When the parent has reused the memory. */
		CHECK_EQ(read(pipes[0], &word, 1), 1);
		for (int i = 0; i < SIZE; i++)
			if (block[i] != 'A')
				_exit(3);
		_exit(0);
	}
	free(block);
	for (int i = 0; i < 150; i++) {
		char *volatile other = malloc(SIZE / 2);
		memset(other, 'B', SIZE / 2);
		usleep(10000);
		free(other);
	}
	CHECK_EQ(write(pipes[1], "x", 1), 1);
	int status;
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	if (status != 0 && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV))
		FAIL("a raw clone ended with %#x", status);
}

int main(void)
{
	past_the_handlers();
	in_a_handler();
	return 0;
}
