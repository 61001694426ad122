/* tierheap_kind_create and tierheap_kind_destroy: every form of a specification, what destroying frees,
 * hundreds of kinds in turn, and what is said to a bad one. Argument 1: a folder for file tiers. */
#include "check.h"
#include "tierheap.h"

static const char *folder;

static int create(tierheap_kind_t **kind, const char *format, const char *dir)
{
	char spec[8192];
	snprintf(spec, sizeof spec, format, dir, dir);
	*kind = (tierheap_kind_t *)-1;
	return tierheap_kind_create(spec, kind);
}

/* Fills a kind with blocks of all sizes, and says how many were below, in DRAM. */
static size_t use(tierheap_kind_t *kind, void **blocks, size_t count, size_t *cold)
{
	size_t dram = 0;
	*cold = 0;
	for (size_t i = 0; i < count; i++) {
		size_t n = i * 131 % 40000 + 1;
		blocks[i] = tierheap_malloc(kind, n);
		CHECK(blocks[i]);
		CHECK(tierheap_kind_of(blocks[i]) == kind);
		fill(blocks[i], n, i);
		int tier = tierheap_tier_of(blocks[i]);
		CHECK_GE(tier, 1);
		if (tier == 1)
			dram += n;
		else
			*cold += n;
	}
	for (size_t i = 0; i < count; i++)
		CHECK_FILLED(blocks[i], i * 131 % 40000 + 1, i);
	return dram;
}

static void every_form(void)
{
	/* What must be empty: 1 the cold tiers, 2 DRAM, 0 neither. */
	static const struct {
		const char *spec;
		int empty;
	} forms[] = {
		{"", 1},
		{"policy=dram", 1},
		{"cold=memfd;policy=cold", 2},
		{"cold=memfd,limit:64M;policy=cold", 2},
		{"cold=file:%s;policy=cold", 2},
		{"cold=file:%s,limit:67108864;policy=cold;strict=1", 2},
		{"cold=memfd;policy=size;threshold=8K", 0},
		{"cold=file:%s;policy=size;threshold=4096", 0},
		{"cold=memfd;policy=ratio;ratio=1:1", 0},
		{"cold=memfd;policy=auto;ratio=1:3", 0},
		{"cold=memfd,limit:64M;cold=file:%s;policy=ratio;ratio=1:1:2", 0},
		{"cold=file:%s;policy=heat", 1},
		{"cold=memfd;policy=dram", 1},
		{"cold=memfd;policy=cold;thp=never", 2},
		{"cold=memfd;policy=cold;thp=madvise;strict=0", 2},
	};
	for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
		enum { COUNT = 500 };
		static void *blocks[COUNT];
		tierheap_kind_t *kind;
		int code = create(&kind, forms[i].spec, folder);
		if (code)
			FAIL("\"%s\": %d, %s", forms[i].spec, code, tierheap_strerror(code));
		CHECK(kind && kind != (tierheap_kind_t *)-1);
		size_t cold, dram = use(kind, blocks, COUNT, &cold);
		if (forms[i].empty == 1 ? cold : forms[i].empty == 2 ? dram : !cold || !dram)
			FAIL("\"%s\" placed %zu bytes in DRAM and %zu below", forms[i].spec, dram, cold);
		for (size_t k = 0; k < COUNT; k += 3)
			tierheap_free(blocks[k]);
		CHECK_EQ(tierheap_kind_destroy(kind), 0);
	}
}

static void destroy_frees_everything(void)
{
	size_t before = held_bytes(), mapped = mappings();
	for (int round = 0; round < 300; round++) {
		enum { COUNT = 60 };
		void *blocks[COUNT];
		size_t cold;
		tierheap_kind_t *kind;
		const char *spec = round % 3 == 0   ? "cold=file:%s;policy=cold"
				   : round % 3 == 1 ? "cold=memfd;policy=size;threshold=4K"
						    : "policy=dram";
		int code = create(&kind, spec, folder);
		if (code)
			FAIL("kind %d: %s", round, tierheap_strerror(code));
		use(kind, blocks, COUNT, &cold);
		void *large = tierheap_malloc(kind, 3 * MIB);
		CHECK(large);
		fill(large, 3 * MIB, 1);
		/* Nothing is freed by hand: a kilobyte left of each would be seen below. */
		CHECK_EQ(tierheap_kind_destroy(kind), 0);
	}
	size_t after = held_bytes();
	if (after > before + 8 * MIB)
		FAIL("%zu bytes held before 300 kinds, %zu after", before, after);
	CHECK_LE(mappings(), mapped + 50);
}

static void many_at_once(void)
{
	enum { COUNT = 2000 };
	static tierheap_kind_t *kinds[COUNT];
	size_t made = 0;
	int code = 0;
	while (made < COUNT && !(code = tierheap_kind_create("policy=dram", &kinds[made]))) {
		char *p = tierheap_malloc(kinds[made], 100);
		CHECK(p);
		CHECK(tierheap_kind_of(p) == kinds[made]);
		made++;
	}
	CHECK_GE(made, 200);
	if (made < COUNT)
		CHECK_EQ(code, TIERHEAP_ETOOMANY);
	for (size_t i = 0; i < made; i++)
		CHECK_EQ(tierheap_kind_destroy(kinds[i]), 0);

	/* Each with a tier of its own, which takes address space as well. */
	for (made = 0; made < COUNT && !(code = create(&kinds[made], "cold=file:%s,limit:16M;policy=cold", folder)); made++)
		CHECK(tierheap_malloc(kinds[made], 10000));
	CHECK_GE(made, 8);
	if (made < COUNT)
		CHECK(code == TIERHEAP_ETOOMANY || code == TIERHEAP_ENOMEM);
	for (size_t i = 0; i < made; i++)
		CHECK_EQ(tierheap_kind_destroy(kinds[i]), 0);
	/* After all that, one more. */
	CHECK_EQ(create(&kinds[0], "cold=memfd;policy=cold", folder), 0);
	CHECK_EQ(tierheap_kind_destroy(kinds[0]), 0);
}

/* Two kinds do not share a slab: what is freed in one is not given out by the other. */
static void apart(void)
{
	tierheap_kind_t *a, *b;
	CHECK_EQ(tierheap_kind_create("policy=dram", &a), 0);
	CHECK_EQ(tierheap_kind_create("policy=dram", &b), 0);
	void *of_a[1000], *of_b[1000];
	for (size_t i = 0; i < 1000; i++) {
		of_a[i] = tierheap_malloc(a, 64);
		of_b[i] = tierheap_malloc(b, 64);
		fill(of_b[i], 64, i);
	}
	for (size_t i = 0; i < 1000; i += 2)
		tierheap_free(of_a[i]);
	CHECK_EQ(tierheap_kind_destroy(a), 0);
	for (size_t i = 0; i < 1000; i++) {
		CHECK_FILLED(of_b[i], 64, i);
		tierheap_free(of_b[i]);
	}
	CHECK_EQ(tierheap_kind_destroy(b), 0);
}

static void bad_specifications(void)
{
	static const char *const words[] = {
		"polcy=cold", "policy=warm", "cold=", "cold=disk:/tmp", "cold=memfd,limit:", "cold=memfd,limit:5X",
		"cold=memfd,limit:12MB", "cold=memfd,limt:5M", "threshold=lots", "threshold=-1", "threshold=1.5K", "strict=2",
		"strict=yes", "cold=memfd;policy=ratio;ratio=1:", "cold=memfd;policy=ratio;ratio=a:b",
		"policy", "=cold", "policy=cold=cold", "cold=memfd;policy=cold;junk", "cold=memfd policy=cold",
		"threshold=99999999999999999999999G", "thp=sometimes", "strict=maybe", "policy=cold;policy=dram",
		"cold=devdax:/dev/dax0.0", "mmap=1", "cold=node:", "cold=node:x", "cold=memfd,limit:65535",
		/* Right words of the heap as a whole, which no kind obeys. */
		"cold=memfd;policy=cold;dram=1G", "policy=dram;stats=1", "cold=memfd;abort=0",
	};
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
		tierheap_kind_t *kind = (tierheap_kind_t *)-1;
		int code = tierheap_kind_create(words[i], &kind);
		if (code != TIERHEAP_ECONFIG)
			FAIL("\"%s\" gave %d (%s), expected TIERHEAP_ECONFIG", words[i], code, tierheap_strerror(code));
		CHECK(!kind || kind == (tierheap_kind_t *)-1);
	}
	static const char *const tiers[] = {
		"cold=file:/no/such/folder;policy=cold", "cold=file:/dev/null;policy=cold",
		"cold=file:/proc;policy=cold", "cold=fsdax:/tmp;policy=cold", "cold=node:1000;policy=cold",
		"cold=memfd;cold=file:/no/such/folder;policy=cold",
	};
	for (size_t i = 0; i < sizeof tiers / sizeof tiers[0]; i++) {
		tierheap_kind_t *kind = NULL;
		int code = tierheap_kind_create(tiers[i], &kind);
		if (code != TIERHEAP_ETIER)
			FAIL("\"%s\" gave %d (%s), expected TIERHEAP_ETIER", tiers[i], code, tierheap_strerror(code));
		CHECK(!kind);
	}
	tierheap_kind_t *kind = NULL;
	CHECK_EQ(tierheap_kind_create(NULL, &kind), TIERHEAP_EINVAL);
	CHECK_EQ(tierheap_kind_create("policy=dram", NULL), TIERHEAP_EINVAL);
	CHECK_EQ(tierheap_kind_destroy(NULL), TIERHEAP_EINVAL);
	CHECK_EQ(tierheap_kind_destroy(tierheap_kind_default()), TIERHEAP_EBUSY);
	CHECK_EQ(tierheap_kind_destroy(tierheap_kind_dram()), TIERHEAP_EBUSY);
	CHECK_EQ(tierheap_kind_destroy((tierheap_kind_t *)&kind), TIERHEAP_EINVAL);
	CHECK_EQ(tierheap_kind_create("policy=dram", &kind), 0);
	CHECK_EQ(tierheap_kind_destroy(kind), 0);
	CHECK_EQ(tierheap_kind_destroy(kind), TIERHEAP_EINVAL);
}

static void standing_kinds(void)
{
	tierheap_kind_t *standard = tierheap_kind_default(), *dram = tierheap_kind_dram(),
			*cold = tierheap_kind_cold();
	CHECK(standard && dram && cold);
	void *p = tierheap_malloc(dram, 100000), *q = tierheap_malloc(cold, 100), *r = tierheap_malloc(NULL, 100);
	CHECK_EQ(tierheap_tier_of(p), 1);
	CHECK_EQ(tierheap_tier_of(q), 2);
	/* No configuration: a memfd is there for the cold kind, and the default kind stays in DRAM. */
	CHECK_EQ(tierheap_tier_of(r), 1);
	CHECK(tierheap_kind_of(p) == dram && tierheap_kind_of(q) == cold && tierheap_kind_of(r) == standard);
	tierheap_free(p);
	tierheap_free(q);
	tierheap_free(r);
}

int main(int argc, char **argv)
{
	CHECK(argc > 1);
	folder = argv[1];
	standing_kinds();
	every_form();
	apart();
	destroy_frees_everything();
	many_at_once();
	bad_specifications();
	return 0;
}
