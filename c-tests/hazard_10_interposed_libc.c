/* Sanitizers, profilers and sandboxes replace libc's functions and call malloc in the replacement. An
 * allocator that reaches for libc's mmap, open or pthread_mutex_lock inside malloc then turns in a
 * circle or waits for itself. Here every one of them allocates. */
#include "check.h"

#include <pthread.h>
#include <sys/mman.h>

/* volatile: the compiler may take malloc for a function that does not come back here. */
static __thread volatile int depth;
static int calls;

/* What the replacement itself asks of malloc: small and large, so that a heap must grow for it. */
static void allocate(void)
{
	__atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
	if (depth > 20)
		FAIL("malloc calls an interposed libc function that calls malloc, %d deep", depth);
	depth++;
	void *p = malloc(200), *q = malloc(100000);
	free(p);
	free(q);
	depth--;
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
	allocate();
	return (void *)syscall(SYS_mmap, at, n, prot, flags, fd, offset);
}
void *mmap64(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
	allocate();
	return (void *)syscall(SYS_mmap, at, n, prot, flags, fd, offset);
}
int munmap(void *at, size_t n)
{
	allocate();
	return (int)syscall(SYS_munmap, at, n);
}
int mprotect(void *at, size_t n, int prot)
{
	allocate();
	return (int)syscall(SYS_mprotect, at, n, prot);
}
int madvise(void *at, size_t n, int advice)
{
	allocate();
	return (int)syscall(SYS_madvise, at, n, advice);
}
int open(const char *path, int flags, ...)
{
	va_list ap;
	va_start(ap, flags);
	int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, int) : 0;
	va_end(ap);
	allocate();
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
ssize_t read(int fd, void *to, size_t n)
{
	allocate();
	return syscall(SYS_read, fd, to, n);
}
int close(int fd)
{
	allocate();
	return (int)syscall(SYS_close, fd);
}
int ftruncate(int fd, off_t n)
{
	allocate();
	return (int)syscall(SYS_ftruncate, fd, n);
}
int fallocate(int fd, int mode, off_t at, off_t n)
{
	allocate();
	return (int)syscall(SYS_fallocate, fd, mode, at, n);
}
char *getenv(const char *name)
{
	extern char **environ;
	size_t n = strlen(name);
	allocate();
	for (char **e = environ; e && *e; e++)
		if (!strncmp(*e, name, n) && (*e)[n] == '=')
			return *e + n + 1;
	return NULL;
}
int clock_gettime(clockid_t which, struct timespec *to)
{
	allocate();
	return (int)syscall(SYS_clock_gettime, which, to);
}
long sysconf(int name)
{
	static long (*next)(int);
	allocate();
	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "sysconf");
	return next(name);
}

static void *work(void *unused)
{
	(void)unused;
	uint64_t seed = 5;
	void *p[200] = {0};
	for (int step = 0; step < 20000; step++) {
		size_t i = rnd(&seed) % 200;
		free(p[i]);
		p[i] = malloc(rnd(&seed) % (step % 50 ? 3000 : 3000000));
		CHECK(p[i]);
	}
	for (int i = 0; i < 200; i++)
		free(p[i]);
	return NULL;
}

int main(void)
{
	work(NULL);
	pthread_t t[3];
	for (int i = 0; i < 3; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, work, NULL), 0);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(pthread_join(t[i], NULL), 0);
	/* The replacements are in force: this one goes through them. */
	int before = calls;
	getenv("HOME");
	CHECK(calls > before);
	return 0;
}
