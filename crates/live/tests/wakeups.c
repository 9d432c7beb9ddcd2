/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Wakeups as schbench has them (its -R): messengers wake workers at a steady rate, each worker computes
 * for a while and waits for the next message. Printed is how long workers take from being woken to
 * running.
 *
 *     wakeups MESSENGERS WORKERS WORK_US PERIOD_US SECONDS
 *
 * WORKERS are those of each messenger, of which it wakes one every PERIOD_US: the one that has waited
 * longest. Messengers take turns: the next sends PERIOD_US / MESSENGERS after the one before. A message
 * that finds no worker waiting is dropped and counted. Workers compute until their CPU time says so,
 * since emulated CPUs slow down as others get busy.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MOST_SAMPLES = 100000 };

struct worker {
	struct messenger *of;
	uint32_t message;		/* futex: 1 when there is one */
	uint64_t woken_at;
	struct worker *next;		/* waiting after it */
	uint64_t cpu_ns;
};

struct messenger {
	pthread_mutex_t lock;
	struct worker *first, *last;	/* that wait */
	struct worker *workers;
	uint64_t first_ns;		/* when it begins to send */
};

static int nr_workers;
static uint64_t work_ns, period_ns, start_ns, end_ns;
static uint32_t samples[MOST_SAMPLES];
static int nr_samples, dropped;

static uint64_t ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void queue(struct worker *w)
{
	struct messenger *m = w->of;

	pthread_mutex_lock(&m->lock);
	w->next = NULL;
	if (m->first)
		m->last->next = w;
	else
		m->first = w;
	m->last = w;
	pthread_mutex_unlock(&m->lock);
}

static struct worker *take(struct messenger *m)
{
	struct worker *w;

	pthread_mutex_lock(&m->lock);
	w = m->first;
	if (w)
		m->first = w->next;
	pthread_mutex_unlock(&m->lock);
	return w;
}

static void *work(void *data)
{
	struct worker *w = data;
	uint64_t woke, until;
	int i;

	for (;;) {
		queue(w);
		while (!__atomic_exchange_n(&w->message, 0, __ATOMIC_ACQUIRE))
			syscall(SYS_futex, &w->message, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
		woke = ns(CLOCK_MONOTONIC);
		i = __atomic_fetch_add(&nr_samples, woke >= start_ns && woke < end_ns, __ATOMIC_RELAXED);
		if (woke >= start_ns && woke < end_ns && i < MOST_SAMPLES)
			samples[i] = (woke - w->woken_at) / 1000;
		until = ns(CLOCK_THREAD_CPUTIME_ID) + work_ns;
		while ((w->cpu_ns = ns(CLOCK_THREAD_CPUTIME_ID)) < until)
			;
	}
	return NULL;
}

static void *send(void *data)
{
	struct messenger *m = data;
	uint64_t next = m->first_ns;
	struct timespec t;
	struct worker *w;

	for (;;) {
		t.tv_sec = next / 1000000000;
		t.tv_nsec = next % 1000000000;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
		next += period_ns;
		w = take(m);
		if (!w) {
			dropped += next >= start_ns;
			continue;
		}
		w->woken_at = ns(CLOCK_MONOTONIC);
		__atomic_store_n(&w->message, 1, __ATOMIC_RELEASE);
		syscall(SYS_futex, &w->message, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	}
	return NULL;
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	int i, j, nr_messengers = argc == 6 ? atoi(argv[1]) : 0;
	struct messenger *all = calloc(nr_messengers + 1, sizeof(*all));
	uint64_t cpu_before = 0, cpu_after;
	pthread_t thread;

	if (nr_messengers < 1)
		return 2;
	nr_workers = atoi(argv[2]);
	work_ns = atoi(argv[3]) * 1000ull;
	period_ns = atoi(argv[4]) * 1000ull;
	start_ns = ns(CLOCK_MONOTONIC) + 1000000000;
	end_ns = start_ns + atoi(argv[5]) * 1000000000ull;
	for (i = 0; i < nr_messengers; i++) {
		pthread_mutex_init(&all[i].lock, NULL);
		all[i].workers = calloc(nr_workers, sizeof(struct worker));
		for (j = 0; j < nr_workers; j++) {
			all[i].workers[j].of = &all[i];
			pthread_create(&thread, NULL, work, &all[i].workers[j]);
		}
		all[i].first_ns = start_ns - 500000000 + i * period_ns / nr_messengers;
		pthread_create(&thread, NULL, send, &all[i]);
	}
	while (ns(CLOCK_MONOTONIC) < start_ns)
		usleep(10000);
	cpu_before = ns(CLOCK_PROCESS_CPUTIME_ID);
	while (ns(CLOCK_MONOTONIC) < end_ns)
		usleep(100000);
	cpu_after = ns(CLOCK_PROCESS_CPUTIME_ID);
	if (nr_samples > MOST_SAMPLES)
		nr_samples = MOST_SAMPLES;
	qsort(samples, nr_samples, sizeof(*samples), by_value);
	printf("samples %d dropped %d cpus %.2f p50 %u p99 %u p999 %u max %u\n", nr_samples, dropped,
	       (double)(cpu_after - cpu_before) / (end_ns - start_ns), samples[nr_samples / 2],
	       samples[nr_samples * 99ll / 100], samples[nr_samples * 999ll / 1000],
	       samples[nr_samples ? nr_samples - 1 : 0]);
	fflush(stdout);
	_exit(0);
}
