// SPDX-License-Identifier: GPL-2.0-only
/*
 * Cache lines that hooks transfer between CPUs
 *
 * hooks.c is compiled with -fsanitize=thread, so that each of its loads and stores calls a function. The
 * functions in this file replace those of the sanitizer. They follow the lines of maps and of the scheduler's
 * variables. A line is transferred if a CPU reads it without having a copy, or writes it while other CPUs have
 * copies. Data of a single task moves with the task, and does not count.
 */
#include <stdint.h>
#include <string.h>

typedef uint64_t u64;

#define LINE 64
#define WORDS 8			/* words of 64 CPUs each */
#define REGIONS 64

struct line { u64 sharers[WORDS]; u64 seen_in; };

static struct region { char *from; u64 size; struct line *lines; } regions[REGIONS];
static int nr_regions;

/* hooks.c sets and reads these. */
int lines_cpu = -1;		/* the CPU that calls a hook; -1: none */
u64 lines_call;			/* number of the call */
u64 lines_moved;		/* lines transferred so far; each counts once per call */

extern void *calloc(unsigned long n, unsigned long size);

void follow_lines(void *from, u64 size)
{
	regions[nr_regions++] = (struct region){ from, size, calloc(size / LINE + 2, sizeof(struct line)) };
}

static struct line *line_of(char *at)
{
	int i;

	for (i = 0; i < nr_regions; i++)
		if (at >= regions[i].from && at < regions[i].from + regions[i].size)
			return &regions[i].lines[(at - regions[i].from) / LINE];
	return NULL;
}

static void touch(void *at, int writes)
{
	u64 mask = 1ull << (lines_cpu & 63), others = 0;
	struct line *line;
	int i, word = lines_cpu / 64;

	if (lines_cpu < 0 || !(line = line_of(at)))
		return;
	for (i = 0; i < WORDS; i++)
		others |= line->sharers[i] & ~(i == word ? mask : 0);
	if ((!(line->sharers[word] & mask) || (writes && others)) && line->seen_in != lines_call) {
		line->seen_in = lines_call;
		lines_moved++;
	}
	if (writes)
		memset(line->sharers, 0, sizeof(line->sharers));
	line->sharers[word] |= mask;
}

#define ACCESS(size)								\
	void __tsan_read##size(void *at) { touch(at, 0); }			\
	void __tsan_write##size(void *at) { touch(at, 1); }			\
	void __tsan_unaligned_read##size(void *at) { touch(at, 0); }		\
	void __tsan_unaligned_write##size(void *at) { touch(at, 1); }		\
	void __tsan_volatile_read##size(void *at) { touch(at, 0); }		\
	void __tsan_volatile_write##size(void *at) { touch(at, 1); }		\
	void __tsan_read_write##size(void *at) { touch(at, 1); }

ACCESS(1) ACCESS(2) ACCESS(4) ACCESS(8) ACCESS(16)

static void touch_all(char *at, u64 size, int writes)
{
	u64 i;

	for (i = 0; i < size; i += LINE)
		touch(at + i, writes);
}

void __tsan_read_range(void *at, u64 size) { touch_all(at, size, 0); }
void __tsan_write_range(void *at, u64 size) { touch_all(at, size, 1); }
void __tsan_func_entry(void *from) {}
void __tsan_func_exit(void) {}
void __tsan_init(void) {}

void *__tsan_memset(void *to, int value, u64 size)
{
	touch_all(to, size, 1);
	return memset(to, value, size);
}

void *__tsan_memcpy(void *to, const void *from, u64 size)
{
	touch_all(to, size, 1);
	touch_all((void *)from, size, 0);
	return memcpy(to, from, size);
}

#define ATOMIC(bits, type)									\
	type __tsan_atomic##bits##_load(const volatile type *at, int order)			\
	{ touch((void *)at, 0); return *at; }							\
	void __tsan_atomic##bits##_store(volatile type *at, type value, int order)		\
	{ touch((void *)at, 1); *at = value; }							\
	type __tsan_atomic##bits##_exchange(volatile type *at, type value, int order)		\
	{ type old = *at; touch((void *)at, 1); *at = value; return old; }			\
	type __tsan_atomic##bits##_fetch_add(volatile type *at, type value, int order)		\
	{ type old = *at; touch((void *)at, 1); *at += value; return old; }			\
	type __tsan_atomic##bits##_fetch_sub(volatile type *at, type value, int order)		\
	{ type old = *at; touch((void *)at, 1); *at -= value; return old; }			\
	type __tsan_atomic##bits##_fetch_and(volatile type *at, type value, int order)		\
	{ type old = *at; touch((void *)at, 1); *at &= value; return old; }			\
	type __tsan_atomic##bits##_fetch_or(volatile type *at, type value, int order)		\
	{ type old = *at; touch((void *)at, 1); *at |= value; return old; }			\
	int __tsan_atomic##bits##_compare_exchange_strong(volatile type *at, type *expected,	\
							  type value, int order, int failure)	\
	{											\
		type old = *at;									\
												\
		touch((void *)at, 1);								\
		if (old == *expected) {								\
			*at = value;								\
			return 1;								\
		}										\
		*expected = old;								\
		return 0;									\
	}											\
	type __tsan_atomic##bits##_compare_exchange_val(volatile type *at, type expected,	\
							type value, int order, int failure)	\
	{											\
		__tsan_atomic##bits##_compare_exchange_strong(at, &expected, value, order, failure); \
		return expected;								\
	}

ATOMIC(8, uint8_t) ATOMIC(16, uint16_t) ATOMIC(32, uint32_t) ATOMIC(64, u64)
