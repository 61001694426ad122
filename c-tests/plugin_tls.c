/* A plugin for hazard_08: a kilobyte of initial-exec TLS, out of the little that glibc leaves for
 * libraries loaded late. */
#include <string.h>

static __thread char bytes[1024] __attribute__((tls_model("initial-exec")));

int plugin_tls(int value)
{
	memset(bytes, value, sizeof bytes);
	return bytes[sizeof bytes - 1];
}
