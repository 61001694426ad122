/*
 * launch: run one program and say what it cost.
 *
 *     launch touch MIB
 *     launch SECONDS OUTPUT ERRORS [KEY=VALUE]... -- PROGRAM ARGS...
 *
 * A program of its own, and small, because a process starts its life with the peak of the one that
 * made it: under a large parent every peak would be the parent's.  For the same reason the memory
 * that is touched beforehand belongs to a process that is gone by then.  The environment is
 * set for the program alone; launch itself runs on glibc.
 *
 * The line it prints: exit status, signal, whether time ran out, microseconds of user and system
 * time, peak resident KiB.  The last three are of the program and of every descendant that was
 * waited for; the peak is the largest of theirs, not the sum.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int touch(size_t mib)
{
    char *p = mmap(NULL, mib << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return 1;
    memset(p, 1, mib << 20);
    return 0;
}

static void place(const char *path, int as)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0 || dup2(fd, as) < 0) {
        perror(path);
        _exit(126);
    }
    close(fd);
}

static void become(char **argv)
{
    /* A group of its own, so that all of it can be ended; and it ends with us. */
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int null = open("/dev/null", O_RDONLY);
    dup2(null, 0);
    place(argv[2], 1);
    place(argv[3], 2);
    char **a = argv + 4;
    for (; *a && strcmp(*a, "--"); a++)
        putenv(*a);
    if (!*a || !a[1])
        _exit(126);
    execvp(a[1], a + 1);
    perror(a[1]);
    _exit(127);
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "touch"))
        return touch(strtoul(argv[2], NULL, 10));
    if (argc < 6)
        return 2;
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    pid_t pid = fork();
    if (pid < 0) {
        perror("fork");
        return 1;
    }
    if (!pid)
        become(argv);
    setpgid(pid, pid);

    struct timespec left = {atol(argv[1]), 0};
    int late = 0;
    while (sigtimedwait(&child, NULL, &left) < 0) {
        if (errno == EINTR)
            continue;
        late = 1;
        break;
    }
    /* What the program left running must not disturb the next one. */
    siginfo_t ended;
    if (!late)
        waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOWAIT);
    kill(-pid, SIGKILL);
    int status;
    struct rusage used;
    if (wait4(pid, &status, 0, &used) != pid) {
        perror("wait4");
        return 1;
    }
    printf("%d %d %d %lld %lld %ld\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1,
           WIFSIGNALED(status) ? WTERMSIG(status) : 0, late,
           used.ru_utime.tv_sec * 1000000LL + used.ru_utime.tv_usec,
           used.ru_stime.tv_sec * 1000000LL + used.ru_stime.tv_usec, used.ru_maxrss);
    return 0;
}
