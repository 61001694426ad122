/* check.h - what every program in this folder shares: checks that name the failing line,
 * fill patterns, and a look at the process as the kernel sees it. C11 and C++17, header only.
 *
 * Nothing in here allocates: a check that fails inside the allocator must still be able to say
 * where. Programs print nothing when they succeed; the driver holds them to that. */
#ifndef CHECK_H
#define CHECK_H

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

/* ---- checks ---------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4), noreturn, unused)) static void
check_fail(const char *file, int line, const char *format, ...)
{
	char text[1024];
	int n = snprintf(text, sizeof text, "%s:%d: ", file, line);
	va_list ap;
	va_start(ap, format);
	n += vsnprintf(text + n, sizeof text - (size_t)n - 1, format, ap);
	va_end(ap);
	if ((size_t)n > sizeof text - 2)
		n = sizeof text - 2;
	text[n++] = '\n';
	ssize_t ignored = write(2, text, (size_t)n);
	(void)ignored;
	_exit(1);
}

__attribute__((noreturn, unused)) static void check_died(const char *file, int line, pid_t pid, int number)
{
	char text[256];
	int n = snprintf(text, sizeof text, "%s:%d: child %d died by signal %d\n", file, line, (int)pid, number);
	ssize_t ignored = write(2, text, (size_t)n);
	(void)ignored;
	signal(number, SIG_DFL);
	kill(getpid(), number);
	_exit(1);
}

#define FAIL(...) check_fail(__FILE__, __LINE__, __VA_ARGS__)

/* The row says nothing about this allocator, and why: the driver looks for status 77. */
#define NOT_APPLICABLE(...) \
	do { \
		char why_[512]; \
		int length_ = snprintf(why_, sizeof why_, __VA_ARGS__); \
		ssize_t written_ = write(1, why_, (size_t)length_); \
		(void)written_; \
		_exit(77); \
	} while (0)

#define CHECK(condition) \
	do { \
		if (!(condition)) \
			FAIL("not so: %s (errno %d)", #condition, errno); \
	} while (0)

#define CHECK_EQ(have, want) \
	do { \
		long long have_ = (long long)(have), want_ = (long long)(want); \
		if (have_ != want_) \
			FAIL("%s is %lld (%#llx), expected %s = %lld", #have, have_, \
			     (unsigned long long)have_, #want, want_); \
	} while (0)

#define CHECK_LE(have, most) \
	do { \
		long long have_ = (long long)(have), most_ = (long long)(most); \
		if (have_ > most_) \
			FAIL("%s is %lld, expected at most %s = %lld", #have, have_, #most, most_); \
	} while (0)

#define CHECK_GE(have, least) \
	do { \
		long long have_ = (long long)(have), least_ = (long long)(least); \
		if (have_ < least_) \
			FAIL("%s is %lld, expected at least %s = %lld", #have, have_, #least, least_); \
	} while (0)

/* The expression must give NULL and set this errno. */
#define CHECK_NULL(expression, error) \
	do { \
		errno = 0; \
		void *got_ = (expression); \
		int errno_ = errno; \
		if (got_ || errno_ != (error)) \
			FAIL("%s gave %p with errno %d, expected NULL with %s", #expression, got_, \
			     errno_, #error); \
	} while (0)

#define CHECK_ALIGNED(pointer, alignment) \
	do { \
		uintptr_t at_ = (uintptr_t)(pointer); \
		if (!at_ || at_ % (alignment)) \
			FAIL("%s is %#llx, expected a multiple of %zu", #pointer, \
			     (unsigned long long)at_, (size_t)(alignment)); \
	} while (0)

/* ---- patterns -------------------------------------------------------------------------- */

static inline uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdULL;
	x ^= x >> 29;
	return x;
}

/* xorshift: the same numbers in every run, one state a thread. */
static inline uint64_t rnd(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static inline uint64_t pattern_word(uint64_t seed, size_t i)
{
	return mix(seed + i * 0x9e3779b97f4a7c15ULL) | 1;
}

static inline void fill(void *p, size_t n, uint64_t seed)
{
	unsigned char *at = (unsigned char *)p;
	size_t i = 0;
	/* By name: programs are built so that the plain name is a call. */
	for (; n >= 8; i++, at += 8, n -= 8) {
		uint64_t w = pattern_word(seed, i);
		__builtin_memcpy(at, &w, 8);
	}
	uint64_t rest = pattern_word(seed, i);
	memcpy(at, &rest, n);
}

/* Where the pattern breaks: the offset of the first wrong word, or n when all is right. */
static inline size_t broken_at(const void *p, size_t n, uint64_t seed)
{
	const unsigned char *at = (const unsigned char *)p;
	size_t left = n, i = 0;
	for (; left >= 8; i++, at += 8, left -= 8) {
		uint64_t w = pattern_word(seed, i), have;
		__builtin_memcpy(&have, at, 8);
		if (have != w)
			return n - left;
	}
	uint64_t rest = pattern_word(seed, i);
	return memcmp(at, &rest, left) ? n - left : n;
}

#define CHECK_FILLED(pointer, size, seed) \
	do { \
		size_t size_ = (size), good_ = broken_at((pointer), size_, (seed)); \
		if (good_ != size_) \
			FAIL("%s (%p): contents wrong from byte %zu of %zu", #pointer, \
			     (const void *)(pointer), good_, size_); \
	} while (0)

static inline int all_zero(const void *p, size_t n)
{
	const unsigned char *at = (const unsigned char *)p;
	for (; n && (uintptr_t)at % 8; at++, n--)
		if (*at)
			return 0;
	for (; n >= 8; at += 8, n -= 8)
		if (*(const uint64_t *)(const void *)at)
			return 0;
	for (; n; at++, n--)
		if (*at)
			return 0;
	return 1;
}

/* ---- the process from outside ------------------------------------------------------------ */

static inline double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Calls `line` for each line of a file under /proc, without stdio, which would allocate. */
static inline void each_line(const char *path, void (*line)(const char *, void *), void *arg)
{
	char text[8192];
	size_t have = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		FAIL("cannot read %s: errno %d", path, errno);
	for (;;) {
		ssize_t n = read(fd, text + have, sizeof text - 1 - have);
		if (n <= 0)
			break;
		have += (size_t)n;
		text[have] = 0;
		char *from = text, *end;
		while ((end = strchr(from, '\n'))) {
			*end = 0;
			line(from, arg);
			from = end + 1;
		}
		have = (size_t)(text + have - from);
		memmove(text, from, have);
	}
	close(fd);
}

/* The number behind `key` in a file of lines like "Rss:   12 kB", in bytes; 0 when it is not there. */
static inline size_t kib_of(const char *path, const char *key);

static inline void anonymous_line(const char *line, void *total)
{
	unsigned long kib;
	if (sscanf(line, "RssAnon: %lu", &kib) == 1)
		*(size_t *)total = kib * 1024;
}

struct kib_search {
	const char *key;
	size_t bytes;
};

static inline void kib_line(const char *line, void *arg)
{
	struct kib_search *s = (struct kib_search *)arg;
	size_t n = strlen(s->key);
	if (!strncmp(line, s->key, n) && line[n] == ':')
		s->bytes += (size_t)strtoul(line + n + 1, NULL, 10) * 1024;
}

static inline size_t kib_of(const char *path, const char *key)
{
	struct kib_search s = {key, 0};
	each_line(path, kib_line, &s);
	return s.bytes;
}

static inline void count_line(const char *line, void *count)
{
	(void)line;
	++*(size_t *)count;
}

/* Mappings the process has, of the kernel's vm.max_map_count. */
static inline size_t mappings(void)
{
	size_t n = 0;
	each_line("/proc/self/maps", count_line, &n);
	return n;
}

/* Bytes of files without a name that this process holds open: what a file tier really takes,
 * mapped or not, touched or not. */
static inline size_t unlinked_file_bytes(void)
{
	size_t total = 0;
	dev_t seen_dev[64];
	ino_t seen_ino[64];
	size_t seen = 0;
	for (int fd = 3; fd < 20000; fd++) {
		struct stat st;
		if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_nlink)
			continue;
		size_t i = 0;
		while (i < seen && (seen_dev[i] != st.st_dev || seen_ino[i] != st.st_ino))
			i++;
		if (i < seen)
			continue;
		if (seen < 64) {
			seen_dev[seen] = st.st_dev;
			seen_ino[seen++] = st.st_ino;
		}
		total += (size_t)st.st_blocks * 512;
	}
	return total;
}

/* What the process holds: anonymous memory in residence and the space of its nameless files. */
static inline size_t held_bytes(void)
{
	size_t anonymous = 0;
	each_line("/proc/self/status", anonymous_line, &anonymous);
	return anonymous + unlinked_file_bytes();
}

/* ---- the library under test -------------------------------------------------------------- */

/* Programs of the parts that need no header reach the library's own calls by name, so that the
 * same binary runs under plain glibc. NULL when the library is not loaded. */
static inline void *library_symbol(const char *name)
{
	return dlsym(RTLD_DEFAULT, name);
}

/* 0 not the library's, 1 DRAM, 2 the first cold tier; -1 when the library is not loaded. */
static inline int tier_of(const void *p)
{
	int (*of)(const void *);
	*(void **)&of = library_symbol("tierheap_tier_of");
	return of ? of(p) : -1;
}

/* Is this block in slower memory? Of the library's own by its word; of another allocator's by whether
 * a file lies behind the address. */
static inline void covering_line(const char *line, void *arg)
{
	uintptr_t *at = (uintptr_t *)arg;
	unsigned long from, to, inode;
	if (sscanf(line, "%lx-%lx %*s %*s %*s %lu", &from, &to, &inode) == 3 && *at >= from && *at < to)
		at[1] = inode;
}

static inline int in_slow_tier(const void *p)
{
	uintptr_t search[2] = {(uintptr_t)p, 0};
	if (tier_of(p) >= 0)
		return tier_of(p) >= 2;
	each_line("/proc/self/maps", covering_line, search);
	return search[1] != 0;
}

static inline int under_test(void)
{
	return getenv("EXPECT_TIERHEAP") != NULL;
}

/* A preload that the loader ignored would make every check pass on glibc. */
__attribute__((constructor, unused)) static void check_library(void)
{
	if (under_test() && !library_symbol("tierheap_version"))
		FAIL("the library is not loaded");
}

/* ---- a library that is loaded late --------------------------------------------------------- */

/* malloc and free of a library that is loaded now, by its path. NULL when it does not load. */
static void *(*late_malloc)(size_t) __attribute__((unused));
static void (*late_free)(void *) __attribute__((unused));

__attribute__((unused)) static void *load_late(const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return NULL;
	*(void **)&late_malloc = dlsym(library, "malloc");
	*(void **)&late_free = dlsym(library, "free");
	CHECK(late_malloc && late_free);
	/* A handle looks through its dependencies too: libc's malloc would show nothing. */
	Dl_info where;
	struct stat asked, found;
	CHECK(dladdr(*(void **)&late_malloc, &where));
	CHECK(!stat(path, &asked) && !stat(where.dli_fname, &found));
	if (asked.st_ino != found.st_ino || asked.st_dev != found.st_dev)
		NOT_APPLICABLE("%s has no malloc of its own", path);
	return library;
}

/* ---- children ---------------------------------------------------------------------------- */

/* Waits for a child and demands that it ended with status 0. A child's deadly signal becomes this
 * process's own, so that the driver sees a crash for a crash and an alarm for a hang. */
#define CHECK_CHILD(pid) \
	do { \
		int status_ = 0; \
		pid_t pid_ = (pid); \
		if (waitpid(pid_, &status_, 0) != pid_) \
			FAIL("waitpid: errno %d", errno); \
		if (WIFSIGNALED(status_)) \
			check_died(__FILE__, __LINE__, pid_, WTERMSIG(status_)); \
		if (WEXITSTATUS(status_)) \
			FAIL("child %d ended with status %d", (int)pid_, WEXITSTATUS(status_)); \
	} while (0)

#endif
