/* C++'s operators new and delete in all their forms: alignment, new_handler, bad_alloc, nothrow,
 * and blocks that cross between new/delete and malloc/free through realloc-like containers. */
#include "check.h"

#include <malloc.h>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

static int handler_calls;
static void *reserve;

static void give_up()
{
	++handler_calls;
	std::set_new_handler(nullptr);
}

static void release_reserve()
{
	++handler_calls;
	::operator delete(reserve);
	reserve = nullptr;
	std::set_new_handler(give_up);
}

static void every_form(size_t n, size_t a)
{
	auto align = static_cast<std::align_val_t>(a);
	void *p[8] = {
		::operator new(n),
		::operator new[](n),
		::operator new(n, std::nothrow),
		::operator new[](n, std::nothrow),
		::operator new(n, align),
		::operator new[](n, align),
		::operator new(n, align, std::nothrow),
		::operator new[](n, align, std::nothrow),
	};
	for (int i = 0; i < 8; i++) {
		/* Smaller objects than 16 bytes need no 16: C++ allows it; tierheap aligns as glibc does. */
		size_t plain = n >= 16 || under_test() ? 16 : 8;
		CHECK_ALIGNED(p[i], i < 4 ? plain : a);
		CHECK_GE(malloc_usable_size(p[i]), n);
		fill(p[i], n, (uintptr_t)p[i]);
	}
	for (int i = 0; i < 8; i++)
		CHECK_FILLED(p[i], n, (uintptr_t)p[i]);
	::operator delete(p[0]);
	::operator delete[](p[1]);
	::operator delete(p[2], std::nothrow);
	::operator delete[](p[3], std::nothrow);
	::operator delete(p[4], align);
	::operator delete[](p[5], align);
	::operator delete(p[6], align, std::nothrow);
	::operator delete[](p[7], align, std::nothrow);

	::operator delete(::operator new(n), n);
	::operator delete[](::operator new[](n), n);
	::operator delete(::operator new(n, align), n, align);
	::operator delete[](::operator new[](n, align), n, align);
	::operator delete(nullptr);
	::operator delete[](nullptr);
	::operator delete(nullptr, n);
	::operator delete(nullptr, align);
	::operator delete(nullptr, n, align);
}

static void failure()
{
	volatile size_t too_much = static_cast<size_t>(PTRDIFF_MAX) - 100;
	int thrown = 0;
	try {
		::operator new(too_much);
		FAIL("operator new gave PTRDIFF_MAX bytes");
	} catch (const std::bad_alloc &) {
		thrown++;
	}
	try {
		::operator new[](too_much);
		FAIL("operator new[] gave PTRDIFF_MAX bytes");
	} catch (const std::bad_alloc &) {
		thrown++;
	}
	try {
		::operator new(too_much, std::align_val_t(64));
		FAIL("aligned operator new gave PTRDIFF_MAX bytes");
	} catch (const std::bad_alloc &) {
		thrown++;
	}
	try {
		::operator new[](too_much, std::align_val_t(4096));
		FAIL("aligned operator new[] gave PTRDIFF_MAX bytes");
	} catch (const std::bad_alloc &) {
		thrown++;
	}
	CHECK_EQ(thrown, 4);
	CHECK(!::operator new(too_much, std::nothrow));
	CHECK(!::operator new[](too_much, std::nothrow));
	CHECK(!::operator new(too_much, std::align_val_t(64), std::nothrow));
	CHECK(!::operator new[](too_much, std::align_val_t(64), std::nothrow));

	/* The handler is called again and again until it removes itself. */
	reserve = ::operator new(1000);
	handler_calls = 0;
	std::set_new_handler(release_reserve);
	try {
		::operator new(too_much);
		FAIL("operator new gave PTRDIFF_MAX bytes");
	} catch (const std::bad_alloc &) {
	}
	CHECK_EQ(handler_calls, 2);
	CHECK(!reserve);
	/* The nothrow forms ask it too, and return NULL when it throws. */
	std::set_new_handler([] {
		++handler_calls;
		throw std::bad_alloc();
	});
	handler_calls = 0;
	CHECK(!::operator new(too_much, std::nothrow));
	CHECK(!::operator new[](too_much, std::nothrow));
	CHECK(!::operator new(too_much, std::align_val_t(128), std::nothrow));
	CHECK(!::operator new[](too_much, std::align_val_t(128), std::nothrow));
	CHECK_EQ(handler_calls, 4);
	/* A handler that throws passes through. */
	std::set_new_handler([] { throw std::bad_alloc(); });
	try {
		::operator new[](too_much);
		FAIL("operator new[] gave PTRDIFF_MAX bytes");
	} catch (const std::bad_alloc &) {
	}
	CHECK(!::operator new(too_much, std::nothrow));
	std::set_new_handler(nullptr);
}

struct alignas(128) Line {
	unsigned char bytes[384];
};

struct Base {
	virtual ~Base() {}
	char some[40];
};
struct Derived : Base {
	std::string text = std::string(1000, 'd');
};

static void containers()
{
	std::vector<std::string> strings;
	std::unordered_map<int, std::unique_ptr<Base>> map;
	std::vector<Line> lines;
	for (int i = 0; i < 20000; i++) {
		strings.push_back(std::string(static_cast<size_t>(i % 300), static_cast<char>('a' + i % 26)));
		if (i % 3 == 0)
			map[i] = std::make_unique<Derived>();
		if (i % 10 == 0)
			lines.emplace_back();
	}
	CHECK_ALIGNED(lines.data(), 128);
	for (int i = 0; i < 20000; i++) {
		CHECK_EQ(strings[static_cast<size_t>(i)].size(), i % 300);
		if (i % 300)
			CHECK_EQ(strings[static_cast<size_t>(i)].back(), 'a' + i % 26);
	}
	/* Destroyed by another thread than the one that made them. */
	std::thread other([moved = std::move(map)]() mutable { moved.clear(); });
	other.join();
	auto *array = new Line[17];
	CHECK_ALIGNED(array, 128);
	delete[] array;
}

int main()
{
	static const size_t sizes[] = {0, 1, 8, 24, 100, 1000, 5000, 70000, 1500000};
	for (size_t n : sizes)
		for (size_t a = 8; a <= 64 * KIB; a *= 2)
			every_form(n, a);
	failure();
	containers();
	return 0;
}
