/* test_session.c - how a call ended is what the caller is told, whichever part of the engine could not go on. */
#include "check.h"
#include "session.h"

#include <stdio.h>
#include <string.h>

static cflow_session session;

static void do_nothing(void *argument, int thread)
{
    (void)argument;
    (void)thread;
}

/* The status of a call whose worker gave up with `job_status`. */
static int told(int job_status, const int32_t *read_experts)
{
    session.job_status = job_status;
    session.read_experts = read_experts;
    session.has_logits = 0;
    session.busy = 1;
    (void)snprintf(session.job_message, sizeof session.job_message, "what went wrong");
    cf_pool_run(session.pool, do_nothing, NULL);
    return cflow_session_wait(&session);
}

int main(void)
{
    static const int32_t experts[1];
    static const int failures[] = {CFLOW_ERR_ARGUMENT, CFLOW_ERR_IO,          CFLOW_ERR_CHECKSUM,
                                   CFLOW_ERR_MEMORY,   CFLOW_ERR_UNSUPPORTED, CFLOW_ERR_CANCELLED};
    CHECK(cflow_pool_create(1, 0, &session.pool) == CFLOW_OK);
    session.options.value[CFLOW_OPTION_RESIDENCY] = CFLOW_RESIDENCY_COPY;
    for (size_t i = 0; i < sizeof failures / sizeof failures[0]; i++) {
        const char *message = failures[i] == CFLOW_ERR_CANCELLED ? "cancelled" : "what went wrong";
        CHECK(told(failures[i], NULL) == failures[i]);
        CHECK(strstr(cflow_last_error(), message) != NULL);
        CHECK(!session.has_logits);
        CHECK(told(failures[i], experts) == failures[i]);
        CHECK(strstr(cflow_last_error(), message) != NULL);
    }
    CHECK(told(CFLOW_OK, experts) == CFLOW_OK && !session.has_logits);
    CHECK(told(CFLOW_OK, NULL) == CFLOW_OK && session.has_logits);
    cflow_pool_destroy(session.pool);
    return check_summary("test_session");
}
