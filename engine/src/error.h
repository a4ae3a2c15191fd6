/* error.h - status codes and the per-thread error sentence. */
#ifndef CF_ERROR_H
#define CF_ERROR_H

#include "cflow.h"

/* Stores a printf-formatted sentence for cflow_last_error() on this thread and returns `status`. */
int cf_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The sentence may have to travel from a worker to the thread that waits for it. */
#define CF_ERROR_BYTES 512

#endif
