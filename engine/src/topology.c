#define _GNU_SOURCE
#include "topology.h"

#include "cflow.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 1024 };

/* First integer of a file; 0 when there is none. */
static int read_long(const char *path, long *value)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return 0;
    }
    int read = fscanf(file, "%ld", value);
    (void)fclose(file);
    return read == 1;
}

static int read_core(const char *root, int cpu, long *package, long *core)
{
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%d/topology/physical_package_id", root, cpu);
    if (!read_long(path, package)) {
        return 0;
    }
    (void)snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%d/topology/core_id", root, cpu);
    return read_long(path, core);
}

/* CPUs that quota/period allow, rounded up; 0 when the pair is no limit. */
static int quota_cpus(long quota, long period)
{
    if (quota <= 0 || period <= 0) {
        return 0;
    }
    long cpus = quota / period + (quota % period != 0);
    return cpus > CF_MAX_CPUS ? CF_MAX_CPUS : (int)cpus;
}

static int read_quota_v2(const char *folder)
{
    char path[PATH_BYTES + 16];
    (void)snprintf(path, sizeof path, "%s/cpu.max", folder);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return 0;
    }
    long quota = 0, period = 0;
    /* "max 100000" has no number first: no limit. */
    int read = fscanf(file, "%ld %ld", &quota, &period);
    (void)fclose(file);
    return read == 2 ? quota_cpus(quota, period) : 0;
}

static int read_quota_v1(const char *folder)
{
    char path[PATH_BYTES + 32];
    long quota = 0, period = 0;
    (void)snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
    if (!read_long(path, &quota)) {
        return 0;
    }
    (void)snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    return read_long(path, &period) ? quota_cpus(quota, period) : 0;
}

/* The tightest quota from a group up to the mount point; a limit of a parent binds its children. */
static int tightest(const char *mount, const char *group, int (*read_quota)(const char *folder))
{
    char folder[PATH_BYTES];
    const size_t mount_length = strlen(mount);
    int found = 0;
    if (snprintf(folder, sizeof folder, "%s%s", mount, group) >= (int)sizeof folder) {
        return 0;
    }
    for (;;) {
        int cpus = read_quota(folder);
        if (cpus > 0 && (found == 0 || cpus < found)) {
            found = cpus;
        }
        if (strlen(folder) <= mount_length) {
            return found;
        }
        *strrchr(folder, '/') = '\0';
    }
}

static int has_cpu_controller(const char *controllers)
{
    char copy[PATH_BYTES];
    (void)snprintf(copy, sizeof copy, "%s", controllers);
    char *rest = NULL;
    for (char *name = strtok_r(copy, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest)) {
        if (strcmp(name, "cpu") == 0) {
            return 1;
        }
    }
    return 0;
}

static int read_quota(const char *root)
{
    char path[PATH_BYTES], line[PATH_BYTES], mount[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return 0;
    }
    int found = 0;
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
        int cpus = 0;
        if (*controllers == '\0') {
            (void)snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", root);
            cpus = tightest(mount, group, read_quota_v2);
        } else if (has_cpu_controller(controllers)) {
            (void)snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/cpu", root);
            cpus = tightest(mount, group, read_quota_v1);
        }
        if (cpus > 0 && (found == 0 || cpus < found)) {
            found = cpus;
        }
    }
    (void)fclose(file);
    return found;
}

void cf_topology_read(const char *root, cf_topology *topology)
{
    memset(topology, 0, sizeof *topology);
    cpu_set_t mask;
    CPU_ZERO(&mask);
    if (sched_getaffinity(0, sizeof mask, &mask) != 0) {
        CPU_SET(0, &mask);
    }
    static const int UNKNOWN = -1;
    int siblings[CF_MAX_CPUS];
    long packages[CF_MAX_CPUS], cores[CF_MAX_CPUS];
    int sibling_count = 0;
    for (int cpu = 0; cpu < CF_MAX_CPUS && cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET((size_t)cpu, &mask)) {
            continue;
        }
        topology->allowed++;
        long package = UNKNOWN, core = UNKNOWN;
        int known = read_core(root, cpu, &package, &core);
        int seen = 0;
        for (int i = 0; known && i < topology->physical; i++) {
            seen |= packages[i] == package && cores[i] == core;
        }
        if (seen) {
            siblings[sibling_count++] = cpu;
            continue;
        }
        packages[topology->physical] = known ? package : UNKNOWN;
        cores[topology->physical] = known ? core : UNKNOWN;
        topology->cpus[topology->physical++] = cpu;
    }
    memcpy(topology->cpus + topology->physical, siblings, (size_t)sibling_count * sizeof siblings[0]);
    topology->quota = read_quota(root);
}

int cflow_threads_default(void)
{
    cf_topology topology;
    cf_topology_read("", &topology);
    int threads = topology.physical;
    if (topology.quota > 0 && topology.quota < threads) {
        threads = topology.quota;
    }
    return threads < 1 ? 1 : threads;
}
