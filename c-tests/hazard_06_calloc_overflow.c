/* calloc whose product overflows gives NULL and ENOMEM, never the small block of the product. */
#include "check.h"

int main(void)
{
	static const size_t factors[][2] = {
		{SIZE_MAX / 2 + 2, 2}, {2, SIZE_MAX / 2 + 2}, {SIZE_MAX, SIZE_MAX},
		{SIZE_MAX, 2}, {(size_t)1 << 32, (size_t)1 << 32}, {((size_t)1 << 32) + 1, (size_t)1 << 32},
		{SIZE_MAX / 16 + 1, 16}, {SIZE_MAX / 3 + 1, 3}, {(size_t)1 << 63, 2},
		{PTRDIFF_MAX, 2}, {(size_t)PTRDIFF_MAX + 1, 1}, {SIZE_MAX / 4096 + 1, 4097},
	};
	for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++)
		CHECK_NULL(calloc(factors[i][0], factors[i][1]), ENOMEM);
	/* A product that does not overflow is served whole. */
	unsigned char *p = calloc(70000, 33);
	CHECK(p);
	CHECK(all_zero(p, 70000 * 33));
	memset(p, 0xff, 70000 * 33);
	free(p);
	return 0;
}
