/*
 * decode.c - the engine as a program, for processors whose Python is not at hand (tests/foreign):
 *   cflow_decode isa                                   the instruction sets that run here, the default last
 *   cflow_decode MODEL [OPTION=NUMBER ...] TOKEN ...   logits of all tokens to standard output, as floats in memory
 * Exit code 0, or 2 with a sentence on standard error.
 */
#include "cflow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 64 };

static int fail(const char *what, const char *why)
{
    (void)fprintf(stderr, "cflow_decode: %s: %s\n", what, why);
    return 2;
}

static int show_isa(void)
{
    for (int isa = 0; isa < CFLOW_ISA_COUNT; isa++) {
        if (cflow_isa_supported(isa)) {
            (void)printf("%s ", cflow_isa_name(isa));
        }
    }
    (void)printf("%s\n", cflow_isa_name(cflow_isa_default()));
    return 0;
}

/* "name=number" as an option; a status. */
static int set_option(cflow_options *options, const char *text)
{
    const char *const equals = strchr(text, '=');
    const size_t length = (size_t)(equals - text);
    for (int option = 0; option < CFLOW_OPTION_COUNT; option++) {
        const char *const name = cflow_option_name(option);
        if (strlen(name) == length && strncmp(name, text, length) == 0) {
            return cflow_options_set(options, option, strtoll(equals + 1, NULL, 10));
        }
    }
    return cflow_options_set(options, CFLOW_OPTION_COUNT, 0); /* refused, with a message */
}

static int print_logits(cflow_session *session, const cflow_model *model, const int32_t *tokens, size_t count)
{
    uint32_t vocab;
    int status = cflow_model_param(model, CFLOW_PARAM_VOCAB, &vocab);
    float *const logits = status == CFLOW_OK ? calloc(count * vocab, sizeof *logits) : NULL;
    if (logits == NULL) {
        return status == CFLOW_OK ? CFLOW_ERR_MEMORY : status;
    }
    do {
        status = status == CFLOW_ERR_INTERRUPTED ? cflow_session_wait(session)
                                                 : cflow_session_decode_all(session, tokens, count, logits);
    } while (status == CFLOW_ERR_INTERRUPTED);
    if (status == CFLOW_OK && fwrite(logits, sizeof *logits, count * vocab, stdout) != count * vocab) {
        status = CFLOW_ERR_IO;
    }
    free(logits);
    return status;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "isa") == 0) {
        return show_isa();
    }
    if (argc < 3) {
        return fail("arguments", "MODEL [OPTION=NUMBER ...] TOKEN ... are needed, or isa");
    }
    cflow_options *options = NULL;
    cflow_model *model = NULL;
    cflow_session *session = NULL;
    int32_t tokens[MAX_TOKENS];
    size_t count = 0;
    int status = cflow_options_create(&options);
    for (int i = 2; i < argc && status == CFLOW_OK; i++) {
        if (strchr(argv[i], '=') != NULL) {
            status = set_option(options, argv[i]);
        } else if (count < MAX_TOKENS) {
            tokens[count++] = (int32_t)strtol(argv[i], NULL, 10);
        }
    }
    status = status == CFLOW_OK ? cflow_model_open(argv[1], &model) : status;
    status = status == CFLOW_OK ? cflow_session_create(model, options, &session) : status;
    status = status == CFLOW_OK ? print_logits(session, model, tokens, count) : status;
    const int code = status == CFLOW_OK ? 0 : fail(cflow_status_name(status), cflow_last_error());
    cflow_session_destroy(session);
    cflow_model_close(model);
    cflow_options_destroy(options);
    return code;
}
