/* check.h - the few lines that native tests need: a check that reports and goes on, and an exit code. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>

static int checks_failed, checks_made;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        checks_made++;                                                                                                 \
        if (!(condition)) {                                                                                            \
            checks_failed++;                                                                                           \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);                                    \
        }                                                                                                              \
    } while (0)

static inline int check_summary(const char *name)
{
    printf("%s: %d checks, %d failed\n", name, checks_made, checks_failed);
    return checks_failed != 0;
}

#endif
