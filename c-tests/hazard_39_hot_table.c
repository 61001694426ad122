/* The hash table of a cache doubles. By its size alone it belongs below, where large and cold blocks are; but
 * every request goes through it. Within seconds most of it must be in fast memory, by the policy itself or
 * at least after a hint. Argument 1: how many seconds the policy has. */
#include "check.h"

enum { KEYS = 1 << 22, SAMPLES = 64 };

static uint64_t *table;
static size_t slots = 1 << 14;

static int below(void)
{
	int n = 0;
	for (size_t i = 0; i < SAMPLES; i++)
		n += in_slow_tier(table + slots / SAMPLES * i);
	return n;
}

static void insert(uint64_t key)
{
	size_t i = mix(key) & (slots - 1);
	while (table[i])
		i = (i + 1) & (slots - 1);
	table[i] = key;
}

static void twice_as_large(void)
{
	uint64_t *old = table;
	size_t n = slots;
	slots *= 2;
	table = calloc(slots, sizeof *table);
	CHECK(table);
	for (size_t i = 0; i < n; i++)
		if (old[i])
			insert(old[i]);
	free(old);
}

/* Requests until the time is over or most of the table is up. */
static int served_until(double end, uint64_t keys)
{
	uint64_t seed = 3;
	while (now() < end && below() > SAMPLES / 4)
		for (int k = 0; k < 200000; k++) {
			uint64_t key = rnd(&seed) % keys + 1;
			size_t i = mix(key) & (slots - 1);
			while (table[i] && table[i] != key)
				i = (i + 1) & (slots - 1);
			CHECK_EQ(table[i], key);
		}
	return below() <= SAMPLES / 4;
}

int main(int argc, char **argv)
{
	CHECK(argc > 1);
	double seconds = atof(argv[1]);
	table = calloc(slots, sizeof *table);
	CHECK(table);
	uint64_t keys = 0;
	while (keys < KEYS / 2) {
		if (keys > slots / 2)
			twice_as_large();
		insert(++keys);
	}
	CHECK_GE(slots * sizeof *table, 16 * MIB);
	int born = below();
	if (!born && !under_test())
		NOT_APPLICABLE("the table was not placed in the slow tier");
	if (served_until(now() + seconds, keys))
		return 0;
	int (*advise)(void *, size_t, int) = NULL;
	*(void **)&advise = library_symbol("tierheap_advise");
	int error = advise ? advise(table, slots * sizeof *table, 1 /* TIERHEAP_HOT */) : -1;
	if (advise && served_until(now() + seconds, keys))
		return 0;
	FAIL("%d of %d parts of the table were born in the slow tier, %d are there after %g s of requests%s", born,
	     SAMPLES, below(), seconds, !advise ? "; there is no hint" : error ? "; the hint is refused" : " and a hint");
}
