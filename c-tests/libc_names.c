/* Every name of the malloc family, and every form of C++'s operators new and delete, is the
 * library's: one that still led to another allocator would hand its blocks to the wrong free. */
#include "check.h"

static const char *const names[] = {
	"malloc", "calloc", "realloc", "reallocarray", "free", "aligned_alloc", "memalign",
	"posix_memalign", "valloc", "pvalloc", "malloc_usable_size", "malloc_trim", "mallinfo",
	"mallinfo2", "mallopt", "malloc_info", "malloc_stats",
	/* operator new, new[]: plain, nothrow, aligned, aligned nothrow */
	"_Znwm", "_Znam", "_ZnwmRKSt9nothrow_t", "_ZnamRKSt9nothrow_t", "_ZnwmSt11align_val_t",
	"_ZnamSt11align_val_t", "_ZnwmSt11align_val_tRKSt9nothrow_t",
	"_ZnamSt11align_val_tRKSt9nothrow_t",
	/* operator delete, delete[]: plain, nothrow, sized, aligned, sized aligned, aligned nothrow */
	"_ZdlPv", "_ZdaPv", "_ZdlPvRKSt9nothrow_t", "_ZdaPvRKSt9nothrow_t", "_ZdlPvm", "_ZdaPvm",
	"_ZdlPvSt11align_val_t", "_ZdaPvSt11align_val_t", "_ZdlPvmSt11align_val_t",
	"_ZdaPvmSt11align_val_t", "_ZdlPvSt11align_val_tRKSt9nothrow_t",
	"_ZdaPvSt11align_val_tRKSt9nothrow_t",
	/* of jemalloc's own, those that Debian's redis-server mixes with malloc */
	"nallocx", "mallctl", "malloc_stats_print",
	/* the library's C interface */
	"tierheap_malloc", "tierheap_calloc", "tierheap_realloc", "tierheap_aligned_alloc",
	"tierheap_posix_memalign", "tierheap_free", "tierheap_usable_size", "tierheap_kind_create",
	"tierheap_kind_destroy", "tierheap_kind_default", "tierheap_kind_dram",
	"tierheap_kind_cold", "tierheap_kind_of", "tierheap_tier_of", "tierheap_advise",
	"tierheap_configure", "tierheap_stats", "tierheap_stats_print", "tierheap_strerror",
	"tierheap_version",
};

int main(void)
{
	Dl_info own, other;
	int missing = 0;
	void *version = library_symbol("tierheap_version");
	CHECK(version && dladdr(version, &own));
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		void *at = dlsym(RTLD_DEFAULT, names[i]);
		if (at && dladdr(at, &other) && other.dli_fbase == own.dli_fbase)
			continue;
		fprintf(stderr, "%s: %s is in %s\n", __FILE__, names[i],
			at ? other.dli_fname : "nothing");
		missing++;
	}
	return missing != 0;
}
