#include "error.h"

#include <stdarg.h>
#include <stdio.h>

/* Both come from the build system; the fallbacks serve a compile by hand. */
#ifndef CFLOW_BUILD_INFO
#define CFLOW_BUILD_INFO "unknown compiler and flags"
#endif
#ifndef CFLOW_MUTANT
#define CFLOW_MUTANT "none"
#endif

static _Thread_local char last_error[CF_ERROR_BYTES];

int cf_fail(int status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    /* A sentence that does not fit is cut: the status still tells the kind. */
    (void)vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    return status;
}

const char *cflow_last_error(void)
{
    return last_error;
}

int cflow_abi_version(void)
{
    return CFLOW_ABI_VERSION;
}

const char *cflow_build_info(void)
{
    return CFLOW_BUILD_INFO "; mutant " CFLOW_MUTANT;
}

const char *cflow_status_name(int status)
{
    static const char *const names[] = {
        "CFLOW_OK",
        "CFLOW_ERR_ARGUMENT",
        "CFLOW_ERR_MEMORY",
        "CFLOW_ERR_IO",
        "CFLOW_ERR_FORMAT",
        "CFLOW_ERR_CHECKSUM",
        "CFLOW_ERR_UNSUPPORTED",
        "CFLOW_ERR_CONTEXT",
        "CFLOW_ERR_NONFINITE",
        "CFLOW_ERR_CANCELLED",
        "CFLOW_ERR_INTERRUPTED",
    };
    if (status < 0 || status >= (int)(sizeof names / sizeof names[0])) {
        return "unknown status";
    }
    return names[status];
}
