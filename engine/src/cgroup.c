#define _GNU_SOURCE
#include "cgroup.h"

#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 1024 };

static const long NO_QUOTA_MILLICPUS = 1000L * 1000 * 1000;
static const long MAX_PERIOD_US = 1000L * 1000; /* the kernel's own limit */
/* Version 1 says "no limit" as the largest number of whole pages. */
static const long NO_LIMIT_BYTES = 1L << 60;

/* A controller, and how the limit that a group's folder sets is read in each version; 0 = none. */
typedef struct controller {
    const char *name;
    long (*read_v1)(const char *folder);
    long (*read_v2)(const char *folder);
} controller;

/* Thousandths of a CPU that quota / period allow, rounded up; 0 when the pair is no limit. */
static long millicpus(long quota, long period)
{
    if (quota <= 0 || period <= 0 || period > MAX_PERIOD_US || quota / period >= NO_QUOTA_MILLICPUS / 1000) {
        return 0;
    }
    const long rest = quota % period * 1000;
    return quota / period * 1000 + rest / period + (rest % period != 0);
}

/* The integers at the start of a file, at most `count`; returns how many there are. */
static int read_longs(const char *folder, const char *name, long *values, int count)
{
    char path[PATH_BYTES + 32];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return 0;
    }
    int found = 0;
    while (found < count && fscanf(file, "%ld", &values[found]) == 1) {
        found++;
    }
    (void)fclose(file);
    return found;
}

static long read_quota_v2(const char *folder)
{
    long pair[2];
    /* "max 100000" has no number first: no limit. */
    return read_longs(folder, "cpu.max", pair, 2) == 2 ? millicpus(pair[0], pair[1]) : 0;
}

static long read_quota_v1(const char *folder)
{
    long quota, period;
    return read_longs(folder, "cpu.cfs_quota_us", &quota, 1) == 1 &&
                   read_longs(folder, "cpu.cfs_period_us", &period, 1) == 1
               ? millicpus(quota, period)
               : 0;
}

static long read_memory(const char *folder, const char *name)
{
    long bytes;
    return read_longs(folder, name, &bytes, 1) == 1 && bytes > 0 && bytes < NO_LIMIT_BYTES ? bytes : 0;
}

static long read_memory_v2(const char *folder)
{
    return read_memory(folder, "memory.max");
}

static long read_memory_v1(const char *folder)
{
    return read_memory(folder, "memory.limit_in_bytes");
}

static void take_lower(long *found, long limit)
{
    if (limit > 0 && (*found == 0 || limit < *found)) {
        *found = limit;
    }
}

/* The tightest limit from a group up to the mount point; a limit of a parent binds its children. */
static long tightest(const char *mount, const char *group, long (*read_limit)(const char *folder))
{
    char folder[PATH_BYTES];
    const size_t mount_length = strlen(mount);
    long found = 0;
    if (snprintf(folder, sizeof folder, "%s%s", mount, group) >= (int)sizeof folder) {
        return 0;
    }
    for (;;) {
        take_lower(&found, read_limit(folder));
        if (strlen(folder) <= mount_length) {
            return found;
        }
        *strrchr(folder, '/') = '\0';
    }
}

static int has_controller(const char *controllers, const char *wanted)
{
    char copy[PATH_BYTES];
    (void)snprintf(copy, sizeof copy, "%s", controllers);
    char *rest = NULL;
    for (char *name = strtok_r(copy, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest)) {
        if (strcmp(name, wanted) == 0) {
            return 1;
        }
    }
    return 0;
}

static long limit_of_mount(const char *root, const char *folder, const char *group,
                           long (*read_limit)(const char *folder))
{
    char mount[PATH_BYTES];
    const int length = snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s%s", root, *folder == '\0' ? "" : "/", folder);
    return length < (int)sizeof mount ? tightest(mount, group, read_limit) : 0;
}

static long limit_of(const char *root, const controller *wanted)
{
    char path[PATH_BYTES], line[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return 0;
    }
    long found = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        /* "hierarchy:controllers:/path", with empty controllers in version 2 */
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers == NULL ? NULL : strchr(controllers + 1, ':');
        if (group == NULL) {
            continue;
        }
        *controllers++ = '\0';
        *group++ = '\0';
        if (strcmp(group, "/") == 0) {
            *group = '\0';
        }
        if (*controllers == '\0') {
            take_lower(&found, limit_of_mount(root, "", group, wanted->read_v2));
            take_lower(&found, limit_of_mount(root, "unified", group, wanted->read_v2));
        } else if (has_controller(controllers, wanted->name)) {
            /* Mounted under the names of all its controllers, and usually under each as well. */
            take_lower(&found, limit_of_mount(root, controllers, group, wanted->read_v1));
            take_lower(&found, limit_of_mount(root, wanted->name, group, wanted->read_v1));
        }
    }
    (void)fclose(file);
    return found;
}

long cf_cgroup_millicpus(const char *root)
{
    return limit_of(root, &(controller){"cpu", read_quota_v1, read_quota_v2});
}

long cf_cgroup_memory_bytes(const char *root)
{
    return limit_of(root, &(controller){"memory", read_memory_v1, read_memory_v2});
}
