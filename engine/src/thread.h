/* thread.h - threads of the library in a process that belongs to somebody else. */
#ifndef CF_THREAD_H
#define CF_THREAD_H

#include <pthread.h>

/*
 * Starts a thread that leaves signals to the threads of the application, so that its handlers run where it expects them.
 * Those of a fault (SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP) are not blocked: the kernel ends a process at once
 * when a thread that blocks one causes it, and neither a sanitizer nor Python's faulthandler could say where it was.
 * Returns an errno value, 0 when the thread runs.
 */
int cf_create_thread(pthread_t *handle_out, void *(*run)(void *), void *argument);

#endif
