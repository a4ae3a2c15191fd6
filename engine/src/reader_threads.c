/* reader_threads.c - reads by a few threads, for where io_uring is not to be had. */
#define _GNU_SOURCE
#include "error.h"
#include "pool.h"
#include "reader_back.h"
#include "thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4 };

typedef struct crew {
    int fd;
    pthread_mutex_t lock;
    pthread_cond_t work, result;
    cf_request *first, *last; /* to be read, in order */
    cf_request *finished;
    int ends;
    int threads; /* started */
    pthread_t thread[THREADS];
} crew;

static void *reader_main(void *argument)
{
    crew *own = argument;
    (void)pthread_mutex_lock(&own->lock);
    for (;;) {
        while (own->first == NULL && !own->ends) {
            (void)pthread_cond_wait(&own->work, &own->lock);
        }
        if (own->first == NULL) {
            break;
        }
        cf_request *request = own->first;
        own->first = request->next;
        (void)pthread_mutex_unlock(&own->lock);
        const ssize_t got = pread(own->fd, request->to, request->bytes, (off_t)request->offset);
        request->result = got < 0 ? -(int64_t)errno : (int64_t)got;
        request->there_ns = cf_now_ns();
        (void)pthread_mutex_lock(&own->lock);
        request->next = own->finished;
        own->finished = request;
        (void)pthread_cond_signal(&own->result);
    }
    (void)pthread_mutex_unlock(&own->lock);
    return NULL;
}

static void start(void *self, cf_request *request)
{
    crew *own = self;
    request->next = NULL;
    (void)pthread_mutex_lock(&own->lock);
    if (own->first == NULL) {
        own->first = request;
    } else {
        own->last->next = request;
    }
    own->last = request;
    (void)pthread_cond_signal(&own->work);
    (void)pthread_mutex_unlock(&own->lock);
}

static cf_request *turn(void *self, uint64_t wait_ns)
{
    crew *own = self;
    (void)pthread_mutex_lock(&own->lock);
    if (own->finished == NULL && wait_ns > 0) {
        struct timespec until;
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        const uint64_t ns = (uint64_t)until.tv_nsec + wait_ns;
        until.tv_sec += (time_t)(ns / 1000000000u);
        until.tv_nsec = (long)(ns % 1000000000u);
        while (own->finished == NULL && pthread_cond_timedwait(&own->result, &own->lock, &until) == 0) {
        }
    }
    cf_request *finished = own->finished;
    own->finished = NULL;
    (void)pthread_mutex_unlock(&own->lock);
    return finished;
}

static void destroy(void *self)
{
    crew *own = self;
    (void)pthread_mutex_lock(&own->lock);
    own->ends = 1;
    (void)pthread_cond_broadcast(&own->work);
    (void)pthread_mutex_unlock(&own->lock);
    for (int i = 0; i < own->threads; i++) {
        (void)pthread_join(own->thread[i], NULL);
    }
    (void)pthread_cond_destroy(&own->result);
    (void)pthread_cond_destroy(&own->work);
    (void)pthread_mutex_destroy(&own->lock);
    free(own);
}

static int start_threads(crew *own)
{
    int error = 0;
    while (error == 0 && own->threads < THREADS) {
        error = cf_create_thread(&own->thread[own->threads], reader_main, own);
        own->threads += error == 0;
    }
    /* One will do. */
    return own->threads > 0 ? 0 : error;
}

int cf_reader_threads_create(int fd, cf_back *back_out)
{
    crew *own = calloc(1, sizeof *own);
    if (own == NULL) {
        return cf_fail(CFLOW_ERR_MEMORY, "out of memory for the threads of a reader");
    }
    own->fd = fd;
    pthread_condattr_t clock;
    int error = pthread_condattr_init(&clock);
    error = error != 0 ? error : pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    error = error != 0 ? error : pthread_cond_init(&own->result, &clock);
    error = error != 0 ? error : pthread_cond_init(&own->work, NULL);
    error = error != 0 ? error : pthread_mutex_init(&own->lock, NULL);
    (void)pthread_condattr_destroy(&clock);
    error = error != 0 ? error : start_threads(own);
    if (error != 0) {
        free(own);
        return cf_fail(CFLOW_ERR_MEMORY, "no thread for reading can be started: %s", strerror(error));
    }
    *back_out = (cf_back){.self = own, .start = start, .turn = turn, .destroy = destroy};
    return CFLOW_OK;
}
