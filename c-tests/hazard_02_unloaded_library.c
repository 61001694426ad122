/* The library is loaded late, used by a thread, and closed; then the thread exits. A library that
 * really leaves takes the code of its thread exit handler with it, and the exit jumps into nothing.
 * Runs without preload; argument 1 is the library. */
#include "check.h"

#include <pthread.h>
#include <semaphore.h>

static sem_t allocated, closed;

static void *thread(void *kept)
{
	void *p = late_malloc(1000);
	CHECK(p);
	fill(p, 1000, 1);
	*(void **)kept = p;
	sem_post(&allocated);
	sem_wait(&closed);
	return NULL;
}

int main(int argc, char **argv)
{
	CHECK(argc > 1);
	sem_init(&allocated, 0, 0);
	sem_init(&closed, 0, 0);
	for (int round = 0; round < 5; round++) {
		void *library = load_late(argv[1]);
		if (!library)
			NOT_APPLICABLE("cannot be loaded late (row 8): %s", dlerror());
		pthread_t t[4];
		void *p[4];
		for (int i = 0; i < 4; i++)
			CHECK_EQ(pthread_create(&t[i], NULL, thread, &p[i]), 0);
		for (int i = 0; i < 4; i++)
			sem_wait(&allocated);
		CHECK_EQ(dlclose(library), 0);
		for (int i = 0; i < 4; i++)
			sem_post(&closed);
		for (int i = 0; i < 4; i++)
			CHECK_EQ(pthread_join(t[i], NULL), 0);
		/* Memory of a closed library that stays is still memory; one that leaves may take it along. */
		void *stays = dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD);
		for (int i = 0; i < 4 && stays; i++) {
			CHECK_FILLED(p[i], 1000, 1);
			late_free(p[i]);
		}
	}
	return 0;
}
