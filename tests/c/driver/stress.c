/*
 * stress.c - sessions of two threads over one model, in random order, for a race detector (tests/threads):
 *   cflow_stress MODEL SEED ROUNDS
 * A round is a session of 2 to 8 workers with options at will, some calls that are cancelled or interrupted at any moment
 * or whose reads fail, now and then its end in the middle of one, and a last call without faults, whose logits must have
 * the bits of one thread over a copy. Last line: "rounds R calls C cancelled K failed F ended E right L", L: last calls
 * that were compared. Exit code 0, or 1 with what was wrong.
 */
#define _GNU_SOURCE
#include "cflow.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { USERS = 2, TOKENS = 5, DELAYS = 3, MAX_VOCAB = 4096, MAX_CHOICES = 256, TRIES = 1000 };

typedef struct user {
    pthread_t thread;
    uint64_t state; /* of its random numbers */
    int rounds;
    /* What calls write to: one that is interrupted goes on, so not on the stack of who began it. */
    int32_t tokens[TOKENS];
    uint64_t read_ns;
} user;

static cflow_model *model;
static uint32_t vocab, has_experts, choices; /* of a token: layers * experts per token */
static int32_t prompt[TOKENS];
static const int32_t first_experts[TOKENS * MAX_CHOICES]; /* the first of each block, again and again */
static float expected[DELAYS][MAX_VOCAB];                 /* logits of the prompt, by expert delay */
static uint64_t least_stream_bytes, least_budget_bytes;
static _Atomic int wrong, rounds, calls, cancelled, failed, ended, right;

static uint32_t draw(user *self, uint32_t below)
{
    self->state = self->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(self->state >> 33) % below;
}

static void complain(const char *what, int status)
{
    (void)fprintf(stderr, "cflow_stress: %s: %s: %s\n", what, cflow_status_name(status), cflow_last_error());
    atomic_store(&wrong, 1);
}

/* The call, through interruptions. */
static int finish(cflow_session *session, int status)
{
    while (status == CFLOW_ERR_INTERRUPTED) {
        status = cflow_session_wait(session);
    }
    atomic_fetch_add(&calls, 1);
    return status;
}

static cflow_session *open_session(const int64_t *values, int *status_out)
{
    cflow_options *options = NULL;
    cflow_session *session = NULL;
    int status = cflow_options_create(&options);
    for (int option = 0; option < CFLOW_OPTION_COUNT && status == CFLOW_OK; option++) {
        if (values[option] != INT64_MIN) {
            status = cflow_options_set(options, option, values[option]);
        }
    }
    status = status == CFLOW_OK ? cflow_session_create(model, options, &session) : status;
    cflow_options_destroy(options);
    *status_out = status;
    return session;
}

static void unset(int64_t *values)
{
    for (int option = 0; option < CFLOW_OPTION_COUNT; option++) {
        values[option] = INT64_MIN;
    }
}

/* What a session of residency direct needs at least, as its refusal says. */
static uint64_t least(int option)
{
    int64_t values[CFLOW_OPTION_COUNT];
    unset(values);
    values[CFLOW_OPTION_RESIDENCY] = CFLOW_RESIDENCY_DIRECT;
    values[CFLOW_OPTION_THREADS] = 8; /* the memory of the workers counts, too */
    values[CFLOW_OPTION_EXPERT_DELAY] = DELAYS - 1;
    values[option] = 1;
    int status;
    cflow_session *session = open_session(values, &status);
    cflow_session_destroy(session);
    const char *at = strstr(cflow_last_error(), "at least ");
    return status == CFLOW_ERR_MEMORY && at != NULL ? strtoull(at + strlen("at least "), NULL, 10) : 0;
}

/* Options at will. */
static void choose_options(user *self, int64_t *values)
{
    unset(values);
    values[CFLOW_OPTION_THREADS] = 2 + draw(self, 7);
    values[CFLOW_OPTION_PIN] = draw(self, 2);
    values[CFLOW_OPTION_PROMPT_BATCH] = 1 + 3 * draw(self, 2);
    values[CFLOW_OPTION_EXPERT_DELAY] = draw(self, has_experts ? DELAYS : 1);
    values[CFLOW_OPTION_FUSED] = draw(self, 2);
    values[CFLOW_OPTION_READ_STREAMS] = 1 + draw(self, 4);
    /* Mostly the residency that reads while others compute. */
    const uint32_t kind = draw(self, 6);
    values[CFLOW_OPTION_RESIDENCY] = kind > 2 ? CFLOW_RESIDENCY_DIRECT : (int64_t)kind;
    values[CFLOW_OPTION_EXPERT_READS] = draw(self, 2);
    values[CFLOW_OPTION_READER] = draw(self, CFLOW_READER_COUNT);
    values[CFLOW_OPTION_READ_PATH] = draw(self, 2);
    values[CFLOW_OPTION_READ_BYTES] = 4096 << draw(self, 3);
    values[CFLOW_OPTION_VERIFY] = draw(self, 3);
    values[CFLOW_OPTION_READ_RATE] = draw(self, 4) == 0 ? 50000000 : 0;
    if (draw(self, 2) != 0) {
        values[CFLOW_OPTION_STREAM_BYTES] = (int64_t)least_stream_bytes + 4096 * draw(self, 8);
    }
    if (least_budget_bytes > 0 && values[CFLOW_OPTION_STREAM_BYTES] == INT64_MIN && draw(self, 2) != 0) {
        values[CFLOW_OPTION_RAM_BUDGET] = (int64_t)least_budget_bytes + 65536 * draw(self, 8);
    }
}

/* Another thread, which cancels a call or interrupts the wait for it. */
typedef struct disturber {
    pthread_t thread, caller;
    cflow_session *session;
    long delay_ns;
    int interrupts;
} disturber;

static void *disturb_later(void *argument)
{
    const disturber *self = argument;
    const struct timespec delay = {.tv_nsec = self->delay_ns};
    (void)nanosleep(&delay, NULL);
    if (self->interrupts) {
        (void)pthread_kill(self->caller, SIGUSR1);
    } else {
        cflow_session_cancel(self->session);
    }
    return NULL;
}

static void on_signal(int number)
{
    (void)number;
}

/* Without SA_RESTART: the wait ends. */
static int catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    (void)sigemptyset(&action.sa_mask);
    return sigaction(SIGUSR1, &action, NULL);
}

/* One call of any kind; what it gives is looked at by the last call of the round alone. */
static int call(user *self, cflow_session *session)
{
    const uint32_t kind = draw(self, 3);
    if (kind == 0) {
        return cflow_session_generate(session, prompt[0], TOKENS, self->tokens, NULL);
    }
    if (kind == 1 && has_experts) {
        const int status = cflow_session_read_experts(session, first_experts, TOKENS, &self->read_ns);
        if (status != CFLOW_ERR_ARGUMENT) {
            return status;
        } /* else not of residency direct */
    }
    return cflow_session_decode(session, prompt, TOKENS, NULL);
}

/* Calls that may end in any way that was provoked. Returns 0 when one of them was left in the middle. */
static int provoke(user *self, cflow_session *session)
{
    static const int kinds[] = {CFLOW_FAULT_NONE,        CFLOW_FAULT_SHORT, CFLOW_FAULT_ERROR, CFLOW_FAULT_AGAIN,
                                CFLOW_FAULT_INTERRUPTED, CFLOW_FAULT_DELAY, CFLOW_FAULT_END};
    for (uint32_t left = draw(self, 3); left > 0; left--) {
        const int kind = kinds[draw(self, sizeof kinds / sizeof kinds[0])];
        (void)cflow_fault_set(kind, draw(self, 30), kind == CFLOW_FAULT_DELAY ? 2 : 1 + draw(self, 3));
        /* From 4 us to 8 ms, so that some hit the call whatever the machine. */
        disturber other = {.caller = pthread_self(),
                           .session = session,
                           .delay_ns = 8000000L >> draw(self, 12),
                           .interrupts = draw(self, 2) != 0};
        const int disturbed = draw(self, 4) != 0 && pthread_create(&other.thread, NULL, disturb_later, &other) == 0;
        int status = call(self, session);
        const int leaves = status == CFLOW_ERR_INTERRUPTED && draw(self, 2) != 0;
        status = leaves ? status : finish(session, status);
        if (disturbed) {
            (void)pthread_join(other.thread, NULL);
        }
        if (leaves) {
            return 0;
        }
        atomic_fetch_add(&cancelled, status == CFLOW_ERR_CANCELLED);
        atomic_fetch_add(&failed, status == CFLOW_ERR_IO);
        if (status != CFLOW_OK && status != CFLOW_ERR_CANCELLED && status != CFLOW_ERR_IO) {
            complain("a call that was disturbed", status);
        }
        (void)cflow_session_reset(session);
    }
    return 1;
}

static void run_round(user *self)
{
    int64_t values[CFLOW_OPTION_COUNT];
    float logits[MAX_VOCAB];
    int status;
    choose_options(self, values);
    cflow_session *session = open_session(values, &status);
    if (session == NULL) {
        /* Fewer readers or pages than asked for are the machine's business; so is a fault while copying. */
        if (status != CFLOW_ERR_UNSUPPORTED && status != CFLOW_ERR_IO) {
            complain("a session", status);
        }
        return;
    }
    atomic_fetch_add(&rounds, 1);
    (void)cflow_session_events(session, draw(self, 2) * 100);
    if (!provoke(self, session)) {
        atomic_fetch_add(&ended, 1);
        cflow_session_destroy(session);
        return;
    }
    /* A late cancellation, or a fault of the other user's, may end it once more. */
    int tries = 0;
    do {
        (void)cflow_session_reset(session);
        (void)cflow_fault_set(CFLOW_FAULT_NONE, 0, 0);
        status = finish(session, cflow_session_decode(session, prompt, TOKENS, logits));
    } while ((status == CFLOW_ERR_CANCELLED || status == CFLOW_ERR_IO) && ++tries < TRIES);
    const float *wanted = expected[values[CFLOW_OPTION_EXPERT_DELAY]];
    if (status != CFLOW_OK) {
        complain("the last call", status);
    } else if (memcmp(logits, wanted, vocab * sizeof *logits) != 0) {
        complain("the last call gave other logits", status);
    } else {
        atomic_fetch_add(&right, 1);
    }
    cflow_session_destroy(session);
}

static void *run_rounds(void *argument)
{
    user *self = argument;
    for (int round = 0; round < self->rounds && !atomic_load(&wrong); round++) {
        run_round(self);
    }
    return NULL;
}

static int prepare(const char *path)
{
    uint32_t layers = 0, per_token = 0;
    int status = cflow_model_open(path, &model);
    if (status != CFLOW_OK) {
        return status;
    }
    (void)cflow_model_param(model, CFLOW_PARAM_VOCAB, &vocab);
    (void)cflow_model_param(model, CFLOW_PARAM_EXPERTS, &has_experts);
    (void)cflow_model_param(model, CFLOW_PARAM_LAYERS, &layers);
    (void)cflow_model_param(model, CFLOW_PARAM_EXPERTS_PER_TOKEN, &per_token);
    choices = layers * per_token;
    if (vocab > MAX_VOCAB || choices > MAX_CHOICES) {
        (void)fprintf(stderr, "cflow_stress: %s is too large\n", path);
        return CFLOW_ERR_ARGUMENT;
    }
    for (int i = 0; i < TOKENS; i++) {
        prompt[i] = (int32_t)((uint32_t)i * 7u % vocab);
    }
    for (int delay = 0; delay < (has_experts ? DELAYS : 1) && status == CFLOW_OK; delay++) {
        int64_t values[CFLOW_OPTION_COUNT];
        unset(values);
        values[CFLOW_OPTION_THREADS] = 1;
        values[CFLOW_OPTION_RESIDENCY] = CFLOW_RESIDENCY_COPY;
        values[CFLOW_OPTION_EXPERT_DELAY] = delay;
        cflow_session *session = open_session(values, &status);
        if (session != NULL) {
            status = finish(session, cflow_session_decode(session, prompt, TOKENS, expected[delay]));
        }
        cflow_session_destroy(session);
    }
    least_stream_bytes = least(CFLOW_OPTION_STREAM_BYTES);
    least_budget_bytes = has_experts ? least(CFLOW_OPTION_RAM_BUDGET) : 0;
    if (status == CFLOW_OK && (least_stream_bytes == 0 || (has_experts && least_budget_bytes == 0))) {
        (void)fprintf(stderr, "cflow_stress: no refusal says how many bytes are needed: %s\n", cflow_last_error());
        return CFLOW_ERR_ARGUMENT;
    }
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        (void)fputs("usage: cflow_stress MODEL SEED ROUNDS\n", stderr);
        return 1;
    }
    const int status = prepare(argv[1]);
    if (catch_signals() != 0) {
        (void)fputs("cflow_stress: SIGUSR1 cannot be caught\n", stderr);
        return 1;
    }
    if (status != CFLOW_OK) {
        complain(argv[1], status);
        return 1;
    }
    user users[USERS] = {0};
    int started = 0;
    for (; started < USERS; started++) {
        users[started].state = (uint64_t)strtoull(argv[2], NULL, 10) * (uint64_t)USERS + (uint64_t)started;
        users[started].rounds = (int)strtol(argv[3], NULL, 10);
        (void)draw(&users[started], 1);
        if (pthread_create(&users[started].thread, NULL, run_rounds, &users[started]) != 0) {
            atomic_store(&wrong, 1);
            break;
        }
    }
    for (int i = 0; i < started; i++) {
        (void)pthread_join(users[i].thread, NULL);
    }
    cflow_model_close(model);
    (void)printf("rounds %d calls %d cancelled %d failed %d ended %d right %d\n", atomic_load(&rounds),
                 atomic_load(&calls), atomic_load(&cancelled), atomic_load(&failed), atomic_load(&ended),
                 atomic_load(&right));
    return atomic_load(&wrong);
}
