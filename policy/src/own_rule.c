// SPDX-License-Identifier: GPL-2.0-only
/*
 * bindings.c with a rule of one's own in the headers, as an object that roost loads.
 *
 * What is in a function is written down by thread, so that a function that does not return can be named from
 * outside, and one that faults from the signal's handler.
 */
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* More threads than run at a time: those beyond share. */
#define SLOTS 4096

/* What a thread is in: the name of the function and how many calls there were; as SLOT of crates/rule. */
struct slot {
	const char *function;
	unsigned long calls;
};

/* The file's name, set once the object is loaded. */
const char *roost_rule = "a rule";

struct slot roost_slots[SLOTS];
const unsigned long roost_nr_slots = SLOTS;

static unsigned int nr_threads;
static _Thread_local struct slot *own;
/* What the thread was in last: a division may have moved behind the function's end. */
static _Thread_local const char *last;

/* Begin and end of this object's code, as the linker says. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char etext[] __attribute__((visibility("hidden")));

static inline int roost_enter(const char *function)
{
	if (!own)
		own = &roost_slots[__atomic_fetch_add(&nr_threads, 1, __ATOMIC_RELAXED) % SLOTS];
	__atomic_store_n(&own->calls, own->calls + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&own->function, function, __ATOMIC_RELAXED);
	last = function;
	return 0;
}

static inline void roost_leave(const int *entered)
{
	(void)entered;
	__atomic_store_n(&own->function, NULL, __ATOMIC_RELAXED);
}

#define WATCHED                                                                                    \
	__attribute__((cleanup(roost_leave), unused)) const int entered = roost_enter(__func__)

#include "bindings.c"

static struct sigaction before[NSIG];
/* Whether a fault was told. */
static int told;

static void say(const char *text)
{
	/* If nobody listens there is nobody left to tell. */
	if (write(STDERR_FILENO, text, strlen(text)) < 0)
		return;
}

/* Whether the fault is the rule's: of arithmetic, the instruction's address tells. */
static int is_own(int signal, const siginfo_t *info)
{
	const char *at = info->si_addr;

	if (!last)
		return 0;
	if (signal == SIGFPE || signal == SIGILL)
		return at >= __ehdr_start && at < etext;
	return own->function != NULL;
}

/* A fault in the rule ends the process with its name; any other is left to what was there before. */
static void faulted(int signal, siginfo_t *info, void *context)
{
	(void)context;
	if (!is_own(signal, info)) {
		sigaction(signal, &before[signal], NULL);
		return;
	}
	/* Several threads may be in the rule: the first tells, and ends them all. */
	if (__atomic_exchange_n(&told, 1, __ATOMIC_RELAXED))
		for (;;)
			pause();
	say("roost: ");
	say(roost_rule);
	say(": roost_");
	say(last + strlen("policy_"));
	say(signal == SIGFPE ? " divides by zero" :
	    signal == SIGILL || signal == SIGTRAP ? " reaches what it must not reach" :
						    " reads or writes memory that is not its own, or calls itself without end");
	say("; mend it and run again\n");
	_exit(1);
}

__attribute__((constructor)) static void watch_faults(void)
{
	static const int signals[] = { SIGFPE, SIGSEGV, SIGBUS, SIGILL, SIGTRAP };
	struct sigaction action = { .sa_sigaction = faulted, .sa_flags = SA_SIGINFO | SA_ONSTACK };

	sigemptyset(&action.sa_mask);
	for (unsigned long i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaction(signals[i], &action, &before[signals[i]]);
}
