/* A load for hostile surroundings: blocks of many sizes, every byte verified, now and then in a forked
 * child while the parent overwrites them. Its arguments are steps, taken in order; those below that
 * change something say what a program does to its own surroundings. The last line on stdout is
 * "verified N refused M", and how many children were lost where they may be. What forked children say on stderr goes to descriptor 0, a line "--" behind
 * each, so that the driver can tell one process's warnings from another's. Under plain glibc the steps
 * that ask for a tier are passed over. */
#include "check.h"

#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { SLOTS = 120, STEPS = 400, TABLES = 9, LARGE = 64 };

struct block {
	unsigned char *at;
	size_t size;
	uint64_t seed;
};

/* One a thread; the first is the main thread's. */
static struct block table[TABLES][SLOTS];
static struct block large[LARGE];
static uint64_t states[TABLES];
static _Atomic size_t verified, refused;
/* Whether NULL with ENOMEM is an answer. */
static int may_refuse;
/* Whether a forked child may die for want of its parent's cold memory, and how many did. */
static int may_lose;
static size_t lost;

static void verify(const struct block *b)
{
	size_t good = broken_at(b->at, b->size, b->seed);
	if (good != b->size)
		FAIL("a block of %zu bytes is wrong from byte %zu on", b->size, good);
	verified++;
}

static void verify_all(void)
{
	for (int t = 0; t < TABLES; t++)
		for (int i = 0; i < SLOTS; i++)
			if (table[t][i].at)
				verify(&table[t][i]);
	for (int i = 0; i < LARGE; i++)
		if (large[i].at)
			verify(&large[i]);
}

static void drop(struct block *b)
{
	if (!b->at)
		return;
	verify(b);
	free(b->at);
	b->at = NULL;
}

static void make(struct block *b, size_t size, uint64_t seed)
{
	errno = 0;
	b->at = seed % 5 ? malloc(size) : calloc(1, size);
	b->size = size;
	b->seed = seed;
	if (b->at) {
		if (seed % 5 == 0 && !all_zero(b->at, size))
			FAIL("calloc gave %zu bytes that are not zero", size);
		fill(b->at, size, seed);
		return;
	}
	CHECK_EQ(errno, ENOMEM);
	if (!may_refuse)
		FAIL("%zu bytes were refused", size);
	refused++;
}

/* Some 10 MiB a table. */
static void renew(int t, int steps)
{
	for (int step = 0; step < steps; step++) {
		struct block *b = &table[t][rnd(&states[t]) % SLOTS];
		uint64_t kind = rnd(&states[t]) % 16;
		size_t size = 1 + rnd(&states[t]) % (kind == 0 ? 600000 : kind < 5 ? 60000 : 2000);
		drop(b);
		make(b, size, rnd(&states[t]));
	}
}

static void *renew_thread(void *number)
{
	renew((int)(uintptr_t)number, STEPS);
	return NULL;
}

static void overwrite(int t)
{
	for (int i = 0; i < SLOTS; i++) {
		struct block *b = &table[t][i];
		if (b->at && i % 2) {
			b->seed++;
			fill(b->at, b->size, b->seed);
		}
	}
}

/* The child sees what was, lives on in its own memory and forks itself. */
static void fork_from(int t, int depth)
{
	fflush(stdout);
	pid_t pid = fork();
	if (pid < 0 && may_refuse)
		return;
	CHECK(pid >= 0);
	if (!pid) {
		if (!depth)
			dup2(0, 2);
		verify_all();
		overwrite(t);
		renew(t, STEPS / 2);
		if (!depth)
			fork_from(t, 1);
		verify_all();
		if (!depth)
			CHECK_EQ(write(2, "--\n", 3), 3);
		_exit(0);
	}
	overwrite(t);
	renew(t, STEPS / 2);
	int status;
	if (!may_lose) {
		CHECK_CHILD(pid);
	} else {
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		int gone = WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
		CHECK(gone || (WIFEXITED(status) && !WEXITSTATUS(status)));
		lost += gone;
	}
	verify_all();
}

static void *fork_thread(void *number)
{
	fork_from((int)(uintptr_t)number, 0);
	return NULL;
}

static void in_threads(int count, size_t stack, void *(*run)(void *))
{
	pthread_t threads[TABLES];
	pthread_attr_t attributes;
	CHECK(count < TABLES);
	pthread_attr_init(&attributes);
	if (stack)
		CHECK_EQ(pthread_attr_setstacksize(&attributes, stack), 0);
	int made = 0;
	while (made < count) {
		int error = pthread_create(&threads[made], &attributes, run, (void *)(uintptr_t)(made + 1));
		if (error && may_refuse)
			break;
		CHECK_EQ(error, 0);
		made++;
	}
	for (int i = 0; i < made; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	pthread_attr_destroy(&attributes);
}

/* ---- what a program does to itself --------------------------------------------------------- */

static int in_tier(void)
{
	struct block b;
	make(&b, 3 * MIB, 1);
	int is = b.at && tier_of(b.at) >= 2;
	drop(&b);
	return is;
}

static int open_numbers(int *which, int most)
{
	int count = 0;
	for (int fd = 3; fd < 4096 && count < most; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			which[count++] = fd;
	return count;
}

/* Its own file on every number that was open: not one byte of it may change. */
static int own_file = -1;
static const char OWN[] = "the program's own\n";

static void cover(const char *path)
{
	int numbers[64];
	int count = open_numbers(numbers, 64);
	CHECK(count > 0 || !in_tier());
	own_file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	CHECK(own_file >= 0);
	CHECK_EQ(write(own_file, OWN, sizeof OWN), sizeof OWN);
	for (int i = 0; i < count; i++)
		CHECK_EQ(dup2(own_file, numbers[i]), numbers[i]);
}

static void check_own_file(void)
{
	char text[2 * sizeof OWN];
	struct stat st;
	if (own_file < 0)
		return;
	CHECK_EQ(fstat(own_file, &st), 0);
	CHECK_EQ(st.st_size, sizeof OWN);
	CHECK_EQ(pread(own_file, text, sizeof text, 0), sizeof OWN);
	CHECK(!memcmp(text, OWN, sizeof OWN));
}

/* As daemons are made: two forks, a new session, all descriptors closed, the parents gone. Who waits for
 * it waits for what it holds open: stdout. */
static void become_daemon(void)
{
	for (int i = 0; i < 2; i++) {
		fflush(stdout);
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (pid)
			_exit(0);
		if (i == 0)
			CHECK(setsid() > 0);
	}
	CHECK_EQ(close_range(3, ~0U, 0), 0);
	for (int i = 0; i < 500 && getppid() != 1; i++)
		usleep(1000);
	verify_all();
	CHECK(chdir("/") == 0);
}

/* Another process's file takes what the disk has. */
static void fill_disk(const char *path)
{
	static char zeros[65536];
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	CHECK(fd >= 0);
	while (write(fd, zeros, sizeof zeros) > 0)
		continue;
	CHECK_EQ(errno, ENOSPC);
	close(fd);
}

static void limit(int resource, const char *value)
{
	struct rlimit l = {strtoul(value, NULL, 10), strtoul(value, NULL, 10)};
	CHECK_EQ(setrlimit(resource, &l), 0);
}

static void grow(const char *mebibytes)
{
	size_t left = strtoul(mebibytes, NULL, 10);
	for (int i = 0; i < LARGE && left; i++)
		if (!large[i].at) {
			make(&large[i], MIB, 1000 + (uint64_t)i);
			left--;
		}
	CHECK_EQ(left, 0);
}

/* A new block of every size that the threshold sends there is in this tier. */
static void expect_tier(const char *number)
{
	static const size_t sizes[] = {4096, 20000, 3 * MIB};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		struct block b;
		make(&b, sizes[i], i);
		CHECK(b.at);
		if (tier_of(b.at) >= 0)
			CHECK_EQ(tier_of(b.at), atoi(number));
		drop(&b);
	}
}

static void take(const char *step, const char *value)
{
	if (!strcmp(step, "work"))
		renew(0, STEPS);
	else if (!strcmp(step, "fork"))
		fork_from(0, 0);
	else if (!strcmp(step, "threads"))
		in_threads(atoi(value), 0, renew_thread);
	else if (!strcmp(step, "small-stacks"))
		in_threads(8, strtoul(value, NULL, 10), renew_thread);
	else if (!strcmp(step, "fork-on-stack"))
		in_threads(1, strtoul(value, NULL, 10), fork_thread);
	else if (!strcmp(step, "grow"))
		grow(value);
	else if (!strcmp(step, "tier"))
		expect_tier(value);
	else if (!strcmp(step, "may-refuse"))
		may_refuse = 1;
	else if (!strcmp(step, "may-lose-children"))
		may_lose = 1;
	else if (!strcmp(step, "chroot"))
		CHECK(!chroot(value) && !chdir("/"));
	else if (!strcmp(step, "rmdir"))
		CHECK_EQ(rmdir(value), 0);
	else if (!strcmp(step, "fill"))
		fill_disk(value);
	else if (!strcmp(step, "unlink"))
		CHECK_EQ(unlink(value), 0);
	else if (!strcmp(step, "close"))
		CHECK_EQ(close_range(3, ~0U, 0), 0);
	else if (!strcmp(step, "cover"))
		cover(value);
	else if (!strcmp(step, "daemon"))
		become_daemon();
	else if (!strcmp(step, "descriptors"))
		limit(RLIMIT_NOFILE, value);
	else if (!strcmp(step, "file-size"))
		limit(RLIMIT_FSIZE, value);
	else if (!strcmp(step, "lock"))
		CHECK_EQ(mlockall(MCL_CURRENT | MCL_FUTURE), 0);
	else if (!strcmp(step, "trim"))
		malloc_trim(0);
	else
		FAIL("no step %s", step);
}

int main(int argc, char **argv)
{
	for (int t = 0; t < TABLES; t++)
		states[t] = 1000 + (uint64_t)t;
	for (int i = 1; i < argc; i++) {
		char *value = strchr(argv[i], '=');
		if (value)
			*value++ = 0;
		take(argv[i], value ? value : "");
	}
	verify_all();
	for (int t = 0; t < TABLES; t++)
		for (int i = 0; i < SLOTS; i++)
			drop(&table[t][i]);
	for (int i = 0; i < LARGE; i++)
		drop(&large[i]);
	check_own_file();
	printf("verified %zu refused %zu", (size_t)verified, (size_t)refused);
	if (may_lose)
		printf(" lost %zu", lost);
	printf("\n");
	return 0;
}
