// SPDX-License-Identifier: GPL-2.0-only
/*
 * bindings.c compiled with a user's rule in the headers, as an object that roost loads.
 *
 * Each thread stores the name of the function that it calls. If the function does not return, crates/rule reads the
 * name and reports it. If the function faults, the signal handler below reports it.
 */
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* More than the threads that usually run at a time. Threads beyond that share slots. */
#define SLOTS 4096

/* The function that a thread is in, and how many calls the thread made. SLOT of crates/rule has the same layout. */
struct slot {
	const char *function;
	unsigned long calls;
};

/* The name of the rule's file. roost sets it after it has loaded the object. */
const char *roost_rule = "a rule";

struct slot roost_slots[SLOTS];
const unsigned long roost_nr_slots = SLOTS;

static unsigned int nr_threads;
static _Thread_local struct slot *own;
/* The last function that the thread called. The compiler may move a division past the function's end. */
static _Thread_local const char *last;

/* Begin and end of this object's code; the linker defines both. */
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
/* Whether a fault was reported. */
static int told;

static void say(const char *text)
{
	/* If standard error is closed, the message is lost. */
	if (write(STDERR_FILENO, text, strlen(text)) < 0)
		return;
}

/* Whether the rule caused the fault. For a fault of arithmetic, the address of the instruction says so. */
static int is_own(int signal, const siginfo_t *info)
{
	const char *at = info->si_addr;

	if (!last)
		return 0;
	if (signal == SIGFPE || signal == SIGILL)
		return at >= __ehdr_start && at < etext;
	return own->function != NULL;
}

/* What the rule did, for the message. */
static const char *reason(int signal)
{
	if (signal == SIGFPE)
		return " divides by zero";
	if (signal == SIGILL || signal == SIGTRAP)
		return " reaches what it must not reach";
	return " reads or writes memory that is not its own, or calls itself without end";
}

/*
 * Reports a fault in the rule with the function's name, and ends the process. Other faults go to the handler that was
 * installed before.
 */
static void faulted(int signal, siginfo_t *info, void *context)
{
	(void)context;
	if (!is_own(signal, info)) {
		sigaction(signal, &before[signal], NULL);
		return;
	}
	/* Several threads may be in the rule. The first one reports the fault and ends the process. */
	if (__atomic_exchange_n(&told, 1, __ATOMIC_RELAXED))
		for (;;)
			pause();
	say("roost: ");
	say(roost_rule);
	say(": roost_");
	say(last + strlen("policy_"));
	say(reason(signal));
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
