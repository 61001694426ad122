/* mprotect on heap memory, then fork: the protection is the program's own, in the parent and in the
 * child. Code made in malloc'd memory runs on, guard pages below malloc'd stacks hold, and at no
 * moment does another thread see anything else. The pages' contents are what they were. */
#include "check.h"

#include <pthread.h>
#include <setjmp.h>
#include <sys/mman.h>

static size_t page;

/* ---- what a touch does ------------------------------------------------------------------- */

static sigjmp_buf back;

static void caught(int number)
{
	(void)number;
	siglongjmp(back, 1);
}

static int can_read(const volatile char *p)
{
	if (sigsetjmp(back, 1))
		return 0;
	(void)*p;
	return 1;
}

static int can_write(volatile char *p)
{
	if (sigsetjmp(back, 1))
		return 0;
	*p = *p;
	return 1;
}

/* ---- code ---------------------------------------------------------------------------------- */

/* int f(void) { return 42; } */
#if defined __x86_64__
static const unsigned char code[] = {0xb8, 42, 0, 0, 0, 0xc3};
#elif defined __aarch64__
static const unsigned char code[] = {0x40, 0x05, 0x80, 0x52, 0xc0, 0x03, 0x5f, 0xd6};
#else
#error "no code for this machine"
#endif

static int (*answer)(void);

static int runs(void)
{
	return !sigsetjmp(back, 1) && answer() == 42;
}

/* ---- a thread that runs the code and reads a constant all the while: SIGSEGV ends the program ---- */

static const volatile uint64_t *constant;
static int stop;
static unsigned long rounds;

static void *user(void *unused)
{
	(void)unused;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		CHECK_EQ(answer(), 42);
		CHECK_EQ(*constant, 4711);
		__atomic_fetch_add(&rounds, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* ---- coroutine stacks: many blocks with a guard page each ------------------------------------- */

enum { STACKS = 500, STACK_PAGES = 4 };
static char *stacks[STACKS];

static void check_stacks(int every)
{
	for (int i = 0; i < STACKS; i += every) {
		if (can_read(stacks[i]) || can_write(stacks[i]))
			FAIL("guard page %d is gone", i);
		for (int j = 1; j < STACK_PAGES; j++) {
			char *at = stacks[i] + (size_t)j * page;
			CHECK_FILLED(at, page, (uintptr_t)at);
			if (!can_write(at))
				FAIL("page %d of stack %d is not writable any more", j, i);
		}
	}
}

/* ---- all six protections, side by side in one block ------------------------------------------- */

static const int all[] = {
	PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE, PROT_READ | PROT_EXEC,
	PROT_READ | PROT_WRITE | PROT_EXEC, PROT_READ, PROT_NONE, PROT_READ | PROT_WRITE,
};
enum { PAGES = sizeof all / sizeof *all };
static char *row;

static void check_row(void)
{
	for (int i = 0; i < PAGES; i++) {
		char *at = row + (size_t)i * page;
		if (can_read(at) != !!(all[i] & PROT_READ) || can_write(at) != !!(all[i] & PROT_WRITE))
			FAIL("page %d of the row has another protection than %d", i, all[i]);
		if (all[i] & PROT_READ)
			CHECK_FILLED(at, page, (uintptr_t)at);
	}
}

/* ---- what the program maps over its own block is none of the allocator's ------------------------ */

static char *over;

static void check_over(char value)
{
	for (size_t i = 0; i < page; i += 512)
		CHECK_EQ(over[i], value);
}

int main(void)
{
	page = (size_t)sysconf(_SC_PAGESIZE);
	struct sigaction action = {.sa_handler = caught};
	CHECK(!sigaction(SIGSEGV, &action, NULL));
	CHECK(!sigaction(SIGBUS, &action, NULL));

	unsigned char *text = aligned_alloc(page, page);
	CHECK(text);
	memcpy(text, code, sizeof code);
	__builtin___clear_cache((char *)text, (char *)text + sizeof code);
	CHECK(!mprotect(text, page, PROT_READ | PROT_EXEC));
	*(void **)&answer = text;

	uint64_t *fixed = aligned_alloc(page, page);
	CHECK(fixed);
	*fixed = 4711;
	CHECK(!mprotect(fixed, page, PROT_READ));
	constant = fixed;

	for (int i = 0; i < STACKS; i++) {
		stacks[i] = aligned_alloc(page, STACK_PAGES * page);
		CHECK(stacks[i]);
		for (int j = 0; j < STACK_PAGES; j++) {
			char *at = stacks[i] + (size_t)j * page;
			fill(at, page, (uintptr_t)at);
		}
		CHECK(!mprotect(stacks[i], page, PROT_NONE));
	}

	row = aligned_alloc(page, PAGES * page);
	CHECK(row);
	for (int i = 0; i < PAGES; i++) {
		char *at = row + (size_t)i * page;
		fill(at, page, (uintptr_t)at);
		CHECK(!mprotect(at, page, all[i]));
	}

	over = aligned_alloc(page, page);
	CHECK(over);
	memset(over, 1, page);
	CHECK(mmap(over, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == over);
	memset(over, 2, page);

	pthread_t thread;
	CHECK(!pthread_create(&thread, NULL, user, NULL));
	for (int i = 0; i < 5; i++) {
		/* New memory, so that each fork has something to do. */
		char *fresh = aligned_alloc(page, 3 * MIB);
		CHECK(fresh);
		memset(fresh, i + 1, 3 * MIB);
		CHECK(!mprotect(fresh + page, page, PROT_READ));
		unsigned long before = __atomic_load_n(&rounds, __ATOMIC_RELAXED);
		while (__atomic_load_n(&rounds, __ATOMIC_RELAXED) < before + 1000)
			sched_yield();
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (!pid) {
			alarm(60);
			CHECK(runs());
			CHECK(can_read((char *)fixed) && !can_write((char *)fixed));
			CHECK_EQ(*fixed, 4711);
			check_stacks(7);
			check_row();
			check_over(2);
			CHECK(can_read(fresh + page) && !can_write(fresh + page) && can_write(fresh));
			CHECK_EQ(fresh[page], i + 1);
			_exit(0);
		}
		CHECK_CHILD(pid);
		CHECK(runs());
		CHECK(!can_write((char *)fixed));
		check_stacks(7);
		check_row();
		check_over(2);
		CHECK(can_read(fresh + page) && !can_write(fresh + page) && can_write(fresh));
	}
	stop = 1;
	CHECK(!pthread_join(thread, NULL));
	check_stacks(1);

	/* Given back as it must be, the memory can be used again. */
	for (int i = 0; i < STACKS; i++) {
		CHECK(!mprotect(stacks[i], page, PROT_READ | PROT_WRITE));
		CHECK_FILLED(stacks[i], page, (uintptr_t)stacks[i]);
		free(stacks[i]);
	}
	for (int i = 0; i < STACKS; i++) {
		stacks[i] = aligned_alloc(page, STACK_PAGES * page);
		CHECK(stacks[i]);
		memset(stacks[i], 5, STACK_PAGES * page);
	}
	return 0;
}
