/* An audit library for hazard_11: it allocates while the loader works, before any constructor. */
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

unsigned int la_version(unsigned int version)
{
	char *p = malloc(1000);
	memset(p, 1, 1000);
	free(p);
	return version;
}

unsigned int la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie)
{
	(void)space;
	*cookie = (uintptr_t)strdup(map->l_name ? map->l_name : "");
	return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}

uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned int n, uintptr_t *from, uintptr_t *to,
		       unsigned int *flags, const char *name)
{
	(void)n;
	(void)from;
	(void)to;
	(void)flags;
	free(strdup(name));
	return symbol->st_value;
}
