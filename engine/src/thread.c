/* thread.c - threads that block all signals but those of a fault. */
#define _GNU_SOURCE
#include "thread.h"

#include <signal.h>
#include <stddef.h>

int cf_create_thread(pthread_t *handle_out, void *(*run)(void *), void *argument)
{
    static const int faults[] = {SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
    sigset_t blocked, before;
    (void)sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        (void)sigdelset(&blocked, faults[i]);
    }
    int error = pthread_sigmask(SIG_SETMASK, &blocked, &before);
    if (error == 0) {
        error = pthread_create(handle_out, NULL, run, argument);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    return error;
}
