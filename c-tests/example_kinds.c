/* A small store that keeps its index in DRAM and its values in a slower tier.
 *
 *     cc example_kinds.c -ltierheap && ./a.out /mnt/pmem
 *
 * The index is touched by every look-up and stays in the fast memory; a value is touched once in a while
 * and may live below. free needs no kind: the heap knows where each block came from. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <tierheap.h>

struct entry {
	struct entry *next;
	uint64_t key;
	size_t size;
	char *value;
};

struct store {
	tierheap_kind_t *index, *values;
	size_t buckets;
	struct entry **bucket;
};

static int store_open(struct store *s, const char *folder, size_t buckets)
{
	char spec[4200];
	int code;

	/* At most a gigabyte of values in the folder; strict, so that they never spill into DRAM. */
	snprintf(spec, sizeof spec, "cold=file:%s,limit:1G;policy=cold;strict=1", folder);
	code = tierheap_kind_create(spec, &s->values);
	if (code)
		return code;
	s->index = tierheap_kind_dram();
	s->buckets = buckets;
	s->bucket = tierheap_calloc(s->index, buckets, sizeof *s->bucket);
	return s->bucket ? TIERHEAP_OK : TIERHEAP_ENOMEM;
}

static int store_put(struct store *s, uint64_t key, const void *value, size_t size)
{
	struct entry **head = &s->bucket[key % s->buckets];
	struct entry *e = tierheap_malloc(s->index, sizeof *e);

	if (!e)
		return TIERHEAP_ENOMEM;
	e->value = tierheap_malloc(s->values, size);
	if (!e->value) {
		tierheap_free(e);
		return TIERHEAP_ENOMEM;
	}
	memcpy(e->value, value, size);
	e->key = key;
	e->size = size;
	e->next = *head;
	*head = e;
	return TIERHEAP_OK;
}

static const struct entry *store_get(const struct store *s, uint64_t key)
{
	for (const struct entry *e = s->bucket[key % s->buckets]; e; e = e->next)
		if (e->key == key)
			return e;
	return NULL;
}

static void store_close(struct store *s)
{
	for (size_t i = 0; i < s->buckets; i++)
		for (struct entry *e = s->bucket[i], *next; e; e = next) {
			next = e->next;
			tierheap_free(e);
		}
	tierheap_free(s->bucket);
	/* All values go at once, and their space with them. */
	tierheap_kind_destroy(s->values);
}

int main(int argc, char **argv)
{
	struct store s;
	char value[10000];
	unsigned in_dram = 0, below = 0;
	int code = store_open(&s, argc > 1 ? argv[1] : "/tmp", 4096);

	if (code) {
		fprintf(stderr, "cannot open the store: %s\n", tierheap_strerror(code));
		return 1;
	}
	for (uint64_t key = 0; key < 2000; key++) {
		memset(value, 'a' + (int)(key % 26), sizeof value);
		code = store_put(&s, key, value, sizeof value);
		if (code) {
			fprintf(stderr, "cannot keep value %u: %s\n", (unsigned)key, tierheap_strerror(code));
			return 1;
		}
	}
	for (uint64_t key = 0; key < 2000; key++) {
		const struct entry *e = store_get(&s, key);

		if (!e || e->size != sizeof value || e->value[9999] != 'a' + (char)(key % 26)) {
			fprintf(stderr, "value %u is lost\n", (unsigned)key);
			return 1;
		}
		in_dram += tierheap_tier_of(e) == 1;
		below += tierheap_tier_of(e->value) > 1;
	}
	printf("%u entries in DRAM, %u values in the cold tier\n", in_dram, below);
	store_close(&s);
	return 0;
}
