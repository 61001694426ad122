/* tierheap_strerror and tierheap_version, and the header as C++ sees it. */
#include "check.h"
#include "tierheap.h"

#include <set>
#include <string>

int main()
{
	static const int codes[] = {TIERHEAP_OK, TIERHEAP_EINVAL, TIERHEAP_ECONFIG, TIERHEAP_ETIER,
				    TIERHEAP_ENOMEM, TIERHEAP_ETOOMANY, TIERHEAP_EBUSY, TIERHEAP_EFOREIGN};
	std::set<std::string> texts;
	CHECK_EQ(TIERHEAP_OK, 0);
	for (int code : codes) {
		if (code != TIERHEAP_OK)
			CHECK(code < 0);
		const char *text = tierheap_strerror(code);
		CHECK(text && text[0]);
		texts.insert(text);
	}
	CHECK_EQ(texts.size(), sizeof codes / sizeof codes[0]);
	for (int code : {-10000, 12345, INT32_MIN, INT32_MAX})
		CHECK(tierheap_strerror(code) && tierheap_strerror(code)[0]);
	unsigned major, minor, patch;
	char rest;
	CHECK_EQ(sscanf(tierheap_version(), "%u.%u.%u%c", &major, &minor, &patch, &rest), 3);
	tierheap_kind_t *kind = nullptr;
	CHECK_EQ(tierheap_kind_create("cold=memfd;policy=cold", &kind), TIERHEAP_OK);
	void *p = tierheap_malloc(kind, 100);
	CHECK(tierheap_kind_of(p) == kind);
	tierheap_free(p);
	CHECK_EQ(tierheap_kind_destroy(kind), TIERHEAP_OK);
	return 0;
}
