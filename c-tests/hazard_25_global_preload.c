/* A library in /etc/ld.so.preload is in every program of the machine, from the first of the boot: before
 * /proc, /sys and /dev are mounted, with all descriptors closed, under small limits, under other users, without any
 * environment. One that fails there leaves a machine that does not come up. Each program must print what it
 * prints without the library. In a mount namespace of its own; needs root. Argument 1: the library. */
#include "check.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>

enum how { PLAINLY, CLOSED, LIMITED, NOBODY };
static const char *const names[] = {"plainly", "with all descriptors closed", "under ulimit -v", "as nobody"};

static const char script[] =
	"for i in 1 2 3; do ls /bin | sort | sed s/a/b/ | head -5; done; "
	"x=$(printf '%0200000d' 7); echo ${#x}; awk 'BEGIN { for (i = 0; i < 20000; i++) a[i] = i \"x\"; for (k in a) n += length(a[k]); print n }'";

static size_t run(enum how how, char *out, size_t most)
{
	int ends[2];
	CHECK_EQ(pipe(ends), 0);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		char *arguments[] = {(char *)"sh", (char *)"-c", (char *)script, NULL};
		char *closed[] = {(char *)"sh", (char *)"-c", (char *)":", NULL};
		char *nothing[] = {NULL};
		struct rlimit small = {64 * MIB, 64 * MIB};
		dup2(ends[1], 1);
		dup2(ends[1], 2);
		close_range(3, ~0U, 0);
		if (how == CLOSED)
			close_range(0, ~0U, 0);
		if (how == LIMITED)
			CHECK_EQ(setrlimit(RLIMIT_AS, &small), 0);
		if (how == NOBODY)
			CHECK_EQ(setresgid(65534, 65534, 65534) | setresuid(65534, 65534, 65534), 0);
		execve("/bin/sh", how == CLOSED ? closed : arguments, nothing);
		_exit(9);
	}
	close(ends[1]);
	size_t have = 0;
	ssize_t n;
	while (have < most && (n = read(ends[0], out + have, most - have)) > 0)
		have += (size_t)n;
	close(ends[0]);
	int status = 0;
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status) || WEXITSTATUS(status))
		FAIL("a shell %s ended with status %#x: %.300s", names[how], (unsigned)status, out);
	return have;
}

/* Is the library in the programs that start now? Else all of them would do well. */
static int in_force(const char *library)
{
	char line[600];
	snprintf(line, sizeof line, "grep -q '%s' /proc/self/maps", library);
	return system(line) == 0;
}

enum { MOST = 50000 };
struct output {
	size_t size;
	char text[MOST];
};

/* All of it in a full machine and in a bare one, in a mount namespace that vanishes afterwards; `etc` is an empty
 * folder, `library` NULL for none. */
static void machine(const char *etc, const char *library, struct output *out)
{
	char command[700];
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid) {
		CHECK_CHILD(pid);
		return;
	}
	if (unshare(CLONE_NEWNS))
		_exit(77);
	CHECK_EQ(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	if (library) {
		CHECK_EQ(mount("none", etc, "tmpfs", 0, "mode=755"), 0);
		snprintf(command, sizeof command, "cp -a /etc/. %s && echo '%s' > %s/ld.so.preload", etc, library, etc);
		CHECK_EQ(system(command), 0);
		CHECK_EQ(mount(etc, "/etc", NULL, MS_BIND, NULL), 0);
		if (!in_force(library))
			FAIL("no program starts that has the library");
	}
	for (int bare = 0; bare < 2; bare++) {
		for (int how = PLAINLY; how <= NOBODY; how++, out++)
			out->size = run((enum how)how, out->text, MOST);
		/* As before the first mounts of a boot. */
		static const char *const hidden[] = {"/proc", "/sys", "/dev"};
		for (int i = 0; i < 3 && !bare; i++)
			CHECK_EQ(mount("none", hidden[i], "tmpfs", 0, NULL), 0);
	}
	_exit(0);
}

int main(int argc, char **argv)
{
	enum { RUNS = 8 };
	CHECK(argc > 1);
	if (geteuid())
		NOT_APPLICABLE("needs root, to have an /etc/ld.so.preload of its own");
	struct output *want = mmap(NULL, 2 * RUNS * sizeof *want, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(want != MAP_FAILED);
	struct output *have = want + RUNS;
	char etc[] = "/tmp/hazard_25_XXXXXX";
	CHECK(mkdtemp(etc));
	machine(etc, NULL, want);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		machine(etc, argv[1], have);
		_exit(0);
	}
	int status = 0;
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(rmdir(etc), 0);
	if (status)
		_exit(1);
	CHECK(want[PLAINLY].size > 100);
	for (int i = 0; i < RUNS; i++)
		if (have[i].size != want[i].size || memcmp(have[i].text, want[i].text, want[i].size))
			FAIL("a shell %s, %s: other output than without the library: %.300s", names[i % 4],
			     i < 4 ? "in full" : "without /proc, /sys and /dev", have[i].text);
	return 0;
}
