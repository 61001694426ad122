/* A plugin for hazard_07: loaded with RTLD_DEEPBIND, its malloc is the C library's. */
#include <stdlib.h>
#include <string.h>

char *plugin_make(size_t n)
{
	char *p = calloc(1, n);
	if (p && n > 10)
		strcpy(p, "plugin");
	return p;
}
