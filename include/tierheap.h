/* tierheap: one heap over DRAM and slower memory tiers. The interface for C11 and C++.
 *
 * Functions that can fail return 0 or a negative TIERHEAP_E code; allocation functions return NULL
 * and set errno to ENOMEM, or to EINVAL for a kind that does not exist or an alignment that is none.
 * Every function may be called from any thread; from a signal handler, only those that say so.
 *
 * Generated from src/api/c.rs by cbindgen. Do not edit. */

#ifndef TIERHEAP_H
#define TIERHEAP_H

#include <stddef.h>
#include <stdint.h>

#define TIERHEAP_VERSION "0.1.0"
#define TIERHEAP_VERSION_MAJOR 0
#define TIERHEAP_VERSION_MINOR 1
#define TIERHEAP_VERSION_PATCH 0

/**
 * Success.
 */
#define TIERHEAP_OK 0

/**
 * A bad argument: NULL where none may be, a kind that does not exist, an unknown word.
 */
#define TIERHEAP_EINVAL (-1)

/**
 * A wrong word in a configuration string; stderr has the word and the valid ones.
 */
#define TIERHEAP_ECONFIG (-2)

/**
 * A tier cannot be had; stderr has the reason.
 */
#define TIERHEAP_ETIER (-3)

/**
 * No memory.
 */
#define TIERHEAP_ENOMEM (-4)

/**
 * No more kinds (512) or tiers (64).
 */
#define TIERHEAP_ETOOMANY (-5)

/**
 * Too late, or not now: a configuration is in force already; the kind always exists.
 */
#define TIERHEAP_EBUSY (-6)

/**
 * The pointer is not of this heap.
 */
#define TIERHEAP_EFOREIGN (-7)

/**
 * Advice: the block will be used often.
 */
#define TIERHEAP_HOT 1

/**
 * Advice: the block will be used seldom.
 */
#define TIERHEAP_COLD 2

/**
 * Advice: nothing special is known of the block any more.
 */
#define TIERHEAP_NORMAL 0

/**
 * The tiers that `struct tierheap_stats` has room for.
 */
#define TIERHEAP_STATS_TIERS 9

/**
 * The bytes of a tier's name in `struct tierheap_tier_stats`, with the final zero.
 */
#define TIERHEAP_NAME_SIZE 40

/**
 * An allocation target: a policy over tiers. Made by tierheap_kind_create, or one of the three
 * that always exist.
 */
struct tierheap_kind;

/**
 * A pointer to this names a kind; NULL is the default kind.
 */
typedef struct tierheap_kind tierheap_kind_t;

/**
 * One tier's figures, in bytes.
 */
struct tierheap_tier_stats {
    /**
     * In live blocks; UINT64_MAX where they could not be counted (in a signal handler that
     * interrupted the allocator).
     */
    uint64_t asked;
    /**
     * In slabs and large blocks: what counts against the limit.
     */
    uint64_t held;
    /**
     * Of physical memory or file space behind it.
     */
    uint64_t resident;
    /**
     * The most ever held.
     */
    uint64_t peak;
    /**
     * UINT64_MAX where there is none.
     */
    uint64_t limit;
    /**
     * Requests that this tier should have taken and another did.
     */
    uint64_t fallbacks;
    /**
     * "dram", "file:/mnt", "node:1", "memfd"; cut to fit.
     */
    char name[TIERHEAP_NAME_SIZE];
};

/**
 * The statistics of the process.
 */
struct tierheap_stats {
    /**
     * Set it to sizeof(struct tierheap_stats) before the call.
     */
    size_t size;
    /**
     * How many entries of `tier` are filled in.
     */
    uint32_t tiers;
    /**
     * Not used.
     */
    uint32_t reserved;
    /**
     * Frees and reallocs of pointers that were not this heap's.
     */
    uint64_t foreign_frees;
    /**
     * The sum over all tiers.
     */
    uint64_t fallbacks;
    /**
     * Warnings, printed or not.
     */
    uint64_t warnings;
    /**
     * The first is DRAM.
     */
    struct tierheap_tier_stats tier[TIERHEAP_STATS_TIERS];
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * A block of at least `size` bytes in `kind` (NULL: the default kind), aligned to 16. Size 0
 * gives a block of its own. NULL with ENOMEM where no tier of the kind has room, with EINVAL for
 * a kind that does not exist.
 */
void *tierheap_malloc(tierheap_kind_t *kind, size_t size);

/**
 * A zeroed block of `count` times `size` bytes. NULL with ENOMEM where that overflows; else as
 * tierheap_malloc.
 */
void *tierheap_calloc(tierheap_kind_t *kind, size_t count, size_t size);

/**
 * Makes a block hold `size` bytes, moving it if need be; contents up to the smaller size stay.
 * With a kind the block moves there if it is not of it; NULL keeps its own kind. `ptr` NULL is
 * tierheap_malloc; `size` 0 frees and returns NULL, as in glibc. NULL with ENOMEM leaves the
 * block as it was.
 *
 * `ptr` must be NULL or a live block, of this heap or of the next allocator in link order.
 */
void *tierheap_realloc(tierheap_kind_t *kind, void *ptr, size_t size);

/**
 * A block whose address is a multiple of `alignment`. NULL with EINVAL where that is no power of
 * two; else as tierheap_malloc. Any size will do.
 */
void *tierheap_aligned_alloc(tierheap_kind_t *kind, size_t alignment, size_t size);

/**
 * The same in POSIX's manner: 0 and the block in `*ptr`, or EINVAL (alignment no power of two or
 * no multiple of sizeof(void *), kind unknown, `ptr` NULL) or ENOMEM as a positive error number;
 * errno and, on an error, `*ptr` are left alone.
 *
 * `ptr` must be NULL or point to where the block's address can be stored.
 */
int tierheap_posix_memalign(tierheap_kind_t *kind, void **ptr, size_t alignment, size_t size);

/**
 * Frees a block of any kind. NULL is nothing. A pointer that is not this heap's goes to the next
 * `free` in link order. Errno stays.
 *
 * `ptr` must be NULL or a live block that nobody uses any more. A double free and a pointer into
 * a block are detected and abort the program with a message (configuration `abort=0`: are
 * counted).
 */
void tierheap_free(void *ptr);

/**
 * The bytes that may be used at `ptr`: at least what was asked for. 0 for NULL; for a pointer
 * that is not this heap's, what the next allocator says.
 *
 * `ptr` must be NULL or a live block.
 */
size_t tierheap_usable_size(const void *ptr);

/**
 * Makes a kind from a configuration string, for instance
 * "cold=file:/mnt/fast,limit:1G;policy=cold". Its cold tiers are its own. The keys `dram`, `stats`
 * and `abort` belong to the heap as a whole and are wrong words here. TIERHEAP_EINVAL for a NULL
 * argument, TIERHEAP_ECONFIG for a wrong word, TIERHEAP_ETIER where a tier cannot be had,
 * TIERHEAP_ETOOMANY, TIERHEAP_ENOMEM; `*kind` is then left alone.
 *
 * `spec` must be NULL or a string; `kind` must be NULL or point to where the kind can be stored.
 */
int tierheap_kind_create(const char *spec, tierheap_kind_t **kind);

/**
 * Frees everything in a kind, closes its tiers and forgets it. TIERHEAP_EINVAL for NULL or what
 * is no kind, TIERHEAP_EBUSY for the three kinds that always exist.
 *
 * No thread may use the kind, or a block of it, any more.
 */
int tierheap_kind_destroy(tierheap_kind_t *kind);

/**
 * The kind that malloc uses. Never NULL but where there is no memory at all.
 */
tierheap_kind_t *tierheap_kind_default(void);

/**
 * DRAM only.
 */
tierheap_kind_t *tierheap_kind_dram(void);

/**
 * The configured cold tiers; without any, a memfd that is made at the first call. NULL where it
 * cannot be had.
 */
tierheap_kind_t *tierheap_kind_cold(void);

/**
 * The kind of a live block; NULL for NULL and for what is not this heap's.
 */
tierheap_kind_t *tierheap_kind_of(const void *ptr);

/**
 * The tier that holds the memory at `ptr` now, be it the start or the middle of a block: 1 is
 * DRAM, 2 the first cold tier, and so on; 0 where nothing of this heap is. It may change at any
 * time while the address stays. Safe in signal handlers.
 */
int tierheap_tier_of(const void *ptr);

/**
 * Says how a range of a block will be used. A hint: this version checks and takes it, and no
 * policy acts on it yet. TIERHEAP_EINVAL for an unknown advice or a range that wraps,
 * TIERHEAP_EFOREIGN where part of the range is not this heap's.
 */
int tierheap_advise(void *ptr, size_t size, int advice);

/**
 * Puts a configuration string (as in the environment's TIERHEAP) in force. It must come before
 * any other with tiers is: TIERHEAP_EBUSY otherwise. TIERHEAP_EINVAL for NULL, TIERHEAP_ECONFIG
 * for a wrong word, TIERHEAP_ETIER where a tier cannot be had (the others are in force then).
 *
 * `text` must be NULL or a string.
 */
int tierheap_configure(const char *text);

/**
 * Fills in the statistics. TIERHEAP_EINVAL for NULL or a `size` too small. Safe in signal
 * handlers.
 *
 * `out` must be NULL or point to a structure whose `size` is set.
 */
int tierheap_stats(struct tierheap_stats *out);

/**
 * Prints the statistics as "text" or "json" by calling `write` with pieces of it, in order.
 * TIERHEAP_EINVAL for a NULL `write` or another format. Safe in signal handlers if `write` is.
 *
 * `format` must be NULL (for "text") or a string.
 */
int tierheap_stats_print(void (*write)(void *opaque, const char *text, size_t len),
                         void *opaque,
                         const char *format);

/**
 * What a code means, as a text that lasts; never NULL.
 */
const char *tierheap_strerror(int code);

/**
 * The version, as a text that lasts.
 */
const char *tierheap_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TIERHEAP_H */
