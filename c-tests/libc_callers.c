/* The C library's own functions that allocate: what they hand out is freed by the program, and what
 * they keep is freed by themselves, through whatever names they bound to. */
#include "check.h"

#include <dirent.h>
#include <glob.h>
#include <iconv.h>
#include <locale.h>
#include <netdb.h>
#include <pthread.h>
#include <pwd.h>
#include <regex.h>
#include <search.h>
#include <spawn.h>
#include <wchar.h>

extern char **environ;

static int compare(const void *a, const void *b)
{
	const int *x = a, *y = b;
	return (*x > *y) - (*x < *y);
}

static int compare_text(const void *a, const void *b)
{
	return strcmp(a, b);
}

static void text(void)
{
	char *p = strdup("one"), *q = NULL;
	CHECK(!strcmp(p, "one"));
	free(p);
	CHECK_EQ(asprintf(&q, "%s-%05d", "two", 22), 9);
	CHECK(!strcmp(q, "two-00022"));
	free(q);
	wchar_t *w = wcsdup(L"wide");
	CHECK_EQ(wcslen(w), 4);
	free(w);
	char *found = realpath("/proc/self/../self/exe", NULL);
	CHECK(found && found[0] == '/');
	free(found);
	setenv("A_NAME", "first", 1);
	setenv("A_NAME", "second and longer than the first", 1);
	CHECK(!strcmp(getenv("A_NAME"), "second and longer than the first"));
	unsetenv("A_NAME");
	/* Floating point with a precision that needs more than a stack buffer. */
	char *digits = NULL;
	CHECK_EQ(asprintf(&digits, "%.5000f", 1.0), 5002);
	free(digits);
}

static void files(void)
{
	FILE *f = tmpfile();
	CHECK(f);
	for (int i = 0; i < 5000; i++)
		fprintf(f, "line %d %*s\n", i, i % 300, "");
	rewind(f);
	char *line = NULL;
	size_t size = 0;
	int lines = 0;
	while (getline(&line, &size, f) >= 0)
		lines++;
	CHECK_EQ(lines, 5000);
	free(line);
	fclose(f);
	struct dirent **entries = NULL;
	int n = scandir("/etc", &entries, NULL, alphasort);
	CHECK(n > 2);
	while (n)
		free(entries[--n]);
	free(entries);
	glob_t names;
	CHECK_EQ(glob("/etc/*", 0, NULL, &names), 0);
	CHECK(names.gl_pathc > 2);
	globfree(&names);
	DIR *d = opendir("/");
	CHECK(d && readdir(d));
	closedir(d);
	FILE *p = popen("echo from a shell", "r");
	char got[64] = "";
	CHECK(p && fgets(got, sizeof got, p));
	CHECK(!strcmp(got, "from a shell\n"));
	CHECK_EQ(pclose(p), 0);
}

static void tables(void)
{
	enum { COUNT = 300000 };
	int *numbers = malloc(COUNT * sizeof *numbers);
	uint64_t seed = 99;
	for (int i = 0; i < COUNT; i++)
		numbers[i] = (int)rnd(&seed);
	qsort(numbers, COUNT, sizeof *numbers, compare);
	for (int i = 1; i < COUNT; i++)
		CHECK(numbers[i - 1] <= numbers[i]);
	free(numbers);
	regex_t expression;
	CHECK_EQ(regcomp(&expression, "^(a|b)*c{2,30}(x[0-9]+y)+$", REG_EXTENDED), 0);
	CHECK_EQ(regexec(&expression, "ababccx12yx3y", 0, NULL, 0), 0);
	regfree(&expression);
	void *root = NULL;
	static char words[1000][8];
	for (int i = 0; i < 1000; i++) {
		sprintf(words[i], "w%d", i * 7919 % 1000);
		tsearch(words[i], &root, compare_text);
	}
	for (int i = 0; i < 1000; i++)
		tdelete(words[i], &root, compare_text);
	CHECK(!root);
	CHECK(hcreate(1000));
	hdestroy();
}

static void services(void)
{
	setlocale(LC_ALL, "");
	setlocale(LC_ALL, "C.UTF-8");
	iconv_t i = iconv_open("UTF-16", "UTF-8");
	CHECK(i != (iconv_t)-1);
	char in[] = "text", out[64], *from = in, *to = out;
	size_t left = 4, space = sizeof out;
	CHECK_EQ(iconv(i, &from, &left, &to, &space), 0);
	iconv_close(i);
	CHECK(getpwuid(0));
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST}, *address = NULL;
	CHECK_EQ(getaddrinfo("127.0.0.1", "80", &hints, &address), 0);
	freeaddrinfo(address);
	CHECK_EQ(system("exit 3") >> 8, 3);
	pid_t child;
	char *arguments[] = {"true", NULL};
	CHECK_EQ(posix_spawnp(&child, "true", NULL, NULL, arguments, environ), 0);
	CHECK_CHILD(child);
	void *m = dlopen("libm.so.6", RTLD_NOW);
	CHECK(m && dlsym(m, "cos") && !dlsym(m, "no_such_name") && dlerror());
	dlclose(m);
}

static void *all(void *unused)
{
	(void)unused;
	text();
	files();
	return NULL;
}

int main(void)
{
	text();
	files();
	tables();
	services();
	pthread_t thread;
	CHECK_EQ(pthread_create(&thread, NULL, all, NULL), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	return 0;
}
