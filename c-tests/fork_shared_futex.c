/* Threads that sleep on process-shared objects in heap memory while another thread forks: whoever
 * wakes them afterwards must reach them. The kernel finds sleepers of such a futex by what is
 * mapped under the word, so an allocator that exchanges mappings for the fork loses them. A
 * join is one of them: the kernel clears the thread's number, which stands in its stack. */
#include "check.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>

/* Long enough for a thread that has said that it is about to sleep to do so. */
static void settle(void)
{
	usleep(100000);
}

/* What malloc gives, and memory of its own for each size that a policy may place elsewhere. */
static void *block(size_t size)
{
	void *p = aligned_alloc(64, (size + 63) / 64 * 64);
	CHECK(p);
	memset(p, 0, size);
	return p;
}

/* ---- one object of each kind, with a thread that waits on it -------------------------------- */

struct objects {
	sem_t semaphore;
	pthread_mutex_t mutex, condition_mutex;
	pthread_cond_t condition;
	pthread_rwlock_t lock;
	pthread_barrier_t barrier;
	unsigned word, word_v;
	int ready, signalled;
	size_t size; /* that this was allocated with */
};

static void *on_semaphore(void *arg)
{
	struct objects *o = arg;
	__atomic_fetch_add(&o->ready, 1, __ATOMIC_SEQ_CST);
	CHECK(!sem_wait(&o->semaphore));
	return NULL;
}

static void *on_mutex(void *arg)
{
	struct objects *o = arg;
	__atomic_fetch_add(&o->ready, 1, __ATOMIC_SEQ_CST);
	CHECK(!pthread_mutex_lock(&o->mutex));
	CHECK(!pthread_mutex_unlock(&o->mutex));
	return NULL;
}

static void *on_condition(void *arg)
{
	struct objects *o = arg;
	CHECK(!pthread_mutex_lock(&o->condition_mutex));
	__atomic_fetch_add(&o->ready, 1, __ATOMIC_SEQ_CST);
	while (!o->signalled)
		CHECK(!pthread_cond_wait(&o->condition, &o->condition_mutex));
	CHECK(!pthread_mutex_unlock(&o->condition_mutex));
	return NULL;
}

static void *on_lock(void *arg)
{
	struct objects *o = arg;
	__atomic_fetch_add(&o->ready, 1, __ATOMIC_SEQ_CST);
	CHECK(!pthread_rwlock_rdlock(&o->lock));
	CHECK(!pthread_rwlock_unlock(&o->lock));
	return NULL;
}

static void *on_barrier(void *arg)
{
	struct objects *o = arg;
	__atomic_fetch_add(&o->ready, 1, __ATOMIC_SEQ_CST);
	int outcome = pthread_barrier_wait(&o->barrier);
	CHECK(!outcome || outcome == PTHREAD_BARRIER_SERIAL_THREAD);
	return NULL;
}

static void *on_word(void *arg)
{
	struct objects *o = arg;
	__atomic_fetch_add(&o->ready, 1, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&o->word, __ATOMIC_SEQ_CST))
		syscall(SYS_futex, &o->word, FUTEX_WAIT_BITSET, 0, NULL, NULL, FUTEX_BITSET_MATCH_ANY);
	return NULL;
}

#ifdef SYS_futex_waitv
static void *on_list(void *arg)
{
	struct objects *o = arg;
	__atomic_fetch_add(&o->ready, 1, __ATOMIC_SEQ_CST);
	/* The first is private and never woken. */
	static unsigned other;
	struct futex_waitv list[2] = {
		{.val = 0, .uaddr = (uintptr_t)&other, .flags = FUTEX_32 | FUTEX_PRIVATE_FLAG},
		{.val = 0, .uaddr = (uintptr_t)&o->word_v, .flags = FUTEX_32},
	};
	while (!__atomic_load_n(&o->word_v, __ATOMIC_SEQ_CST))
		if (syscall(SYS_futex_waitv, list, 2, 0, NULL, 0) < 0 && errno == ENOSYS)
			break;
	return NULL;
}
#endif

static void *(*const waits[])(void *) = {
	on_semaphore, on_mutex, on_condition, on_lock, on_barrier, on_word,
#ifdef SYS_futex_waitv
	on_list,
#endif
};
enum { WAITS = sizeof waits / sizeof *waits };

static struct objects *objects_of(size_t size)
{
	struct objects *o = block(size < sizeof *o ? sizeof *o : size);
	pthread_mutexattr_t ma;
	pthread_condattr_t ca;
	pthread_rwlockattr_t ra;
	pthread_barrierattr_t ba;
	CHECK(!sem_init(&o->semaphore, 1, 0));
	CHECK(!pthread_mutexattr_init(&ma) && !pthread_mutexattr_setpshared(&ma, PTHREAD_PROCESS_SHARED));
	CHECK(!pthread_mutex_init(&o->mutex, &ma) && !pthread_mutex_init(&o->condition_mutex, &ma));
	CHECK(!pthread_condattr_init(&ca) && !pthread_condattr_setpshared(&ca, PTHREAD_PROCESS_SHARED));
	CHECK(!pthread_cond_init(&o->condition, &ca));
	CHECK(!pthread_rwlockattr_init(&ra) && !pthread_rwlockattr_setpshared(&ra, PTHREAD_PROCESS_SHARED));
	CHECK(!pthread_rwlock_init(&o->lock, &ra));
	CHECK(!pthread_barrierattr_init(&ba) && !pthread_barrierattr_setpshared(&ba, PTHREAD_PROCESS_SHARED));
	CHECK(!pthread_barrier_init(&o->barrier, &ba, 2));
	CHECK(!pthread_mutex_lock(&o->mutex));
	CHECK(!pthread_rwlock_wrlock(&o->lock));
	o->size = size;
	return o;
}

static void release(struct objects *o)
{
	CHECK(!sem_post(&o->semaphore));
	CHECK(!pthread_mutex_unlock(&o->mutex));
	CHECK(!pthread_mutex_lock(&o->condition_mutex));
	o->signalled = 1;
	CHECK(!pthread_cond_signal(&o->condition));
	CHECK(!pthread_mutex_unlock(&o->condition_mutex));
	CHECK(!pthread_rwlock_unlock(&o->lock));
	int outcome = pthread_barrier_wait(&o->barrier);
	CHECK(!outcome || outcome == PTHREAD_BARRIER_SERIAL_THREAD);
	unsigned *words[] = {&o->word, &o->word_v};
	for (int i = 0; i < 2; i++) {
		__atomic_store_n(words[i], 1, __ATOMIC_SEQ_CST);
		syscall(SYS_futex, words[i], FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	}
}

static void fork_once(void)
{
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid)
		_exit(0);
	CHECK_CHILD(pid);
}

static void objects_wake(size_t size, int forks)
{
	struct objects *o = objects_of(size);
	pthread_t threads[WAITS];
	for (int i = 0; i < WAITS; i++)
		CHECK(!pthread_create(&threads[i], NULL, waits[i], o));
	while (__atomic_load_n(&o->ready, __ATOMIC_SEQ_CST) < WAITS)
		usleep(1000);
	settle();
	for (int i = 0; i < forks; i++)
		fork_once();
	release(o);
	for (int i = 0; i < WAITS; i++)
		CHECK(!pthread_join(threads[i], NULL));
	free(o);
}

/* ---- a join of a thread whose stack is a block, forked over by a third --------------------- */

static sem_t may_end;

static void *on_stack(void *unused)
{
	(void)unused;
	while (sem_wait(&may_end))
		;
	return NULL;
}

static void *forker(void *unused)
{
	(void)unused;
	settle(); /* the join is under way */
	fork_once();
	sem_post(&may_end);
	return NULL;
}

static void join_wakes(void)
{
	pthread_attr_t attr;
	size_t size = MIB;
	void *stack = aligned_alloc(4096, size);
	pthread_t thread, third;
	CHECK(stack);
	CHECK(!sem_init(&may_end, 0, 0));
	CHECK(!pthread_attr_init(&attr));
	CHECK(!pthread_attr_setstack(&attr, stack, size));
	CHECK(!pthread_create(&thread, &attr, on_stack, NULL));
	CHECK(!pthread_create(&third, NULL, forker, NULL));
	CHECK(!pthread_join(thread, NULL));
	CHECK(!pthread_join(third, NULL));
	free(stack);
}

/* ---- threads that go to sleep and wake all the time: the fork meets them on their way -------- */

enum { PAIRS = 3 };
struct pair {
	sem_t ping, pong;
	unsigned long passed;
	char pad[4096];
};
static int stop;

static void *left(void *arg)
{
	struct pair *p = arg;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		CHECK(!sem_post(&p->ping));
		CHECK(!sem_wait(&p->pong));
		__atomic_fetch_add(&p->passed, 1, __ATOMIC_RELAXED);
	}
	CHECK(!sem_post(&p->ping));
	return NULL;
}

static void *right(void *arg)
{
	struct pair *p = arg;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		CHECK(!sem_wait(&p->ping));
		CHECK(!sem_post(&p->pong));
	}
	CHECK(!sem_post(&p->pong));
	return NULL;
}

static void play(void)
{
	struct pair *pairs[PAIRS];
	pthread_t threads[PAIRS][2];
	stop = 0;
	for (int i = 0; i < PAIRS; i++) {
		pairs[i] = block(sizeof *pairs[i]);
		CHECK(!sem_init(&pairs[i]->ping, 1, 0) && !sem_init(&pairs[i]->pong, 1, 0));
		CHECK(!pthread_create(&threads[i][0], NULL, left, pairs[i]));
		CHECK(!pthread_create(&threads[i][1], NULL, right, pairs[i]));
	}
	for (int i = 0; i < 3; i++)
		fork_once();
	/* A pair that lost a wake-up stands still, and the alarm ends this. */
	for (int i = 0; i < PAIRS; i++) {
		unsigned long before = __atomic_load_n(&pairs[i]->passed, __ATOMIC_RELAXED);
		while (__atomic_load_n(&pairs[i]->passed, __ATOMIC_RELAXED) < before + 10)
			usleep(100);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < PAIRS; i++) {
		CHECK(!pthread_join(threads[i][0], NULL));
		CHECK(!pthread_join(threads[i][1], NULL));
		free(pairs[i]);
	}
}

int main(void)
{
	alarm(60);
	objects_wake(0, 1);
	objects_wake(100000, 1);
	objects_wake(3 * MIB, 2);
	join_wakes();
	for (int i = 0; i < 20; i++)
		play();
	return 0;
}
