#define _GNU_SOURCE
#include "topology.h"

#include "cflow.h"
#include "cgroup.h"
#include "error.h"

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 1024 };

typedef struct cpu_set {
    uint8_t has[CF_MAX_CPUS];
} cpu_set;

/* ---- files ------------------------------------------------------------------------------------------------------- */

static FILE *open_file(const char *root, const char *path)
{
    char full[PATH_BYTES];
    return snprintf(full, sizeof full, "%s/%s", root, path) < (int)sizeof full ? fopen(full, "re") : NULL;
}

static FILE *open_cpu_file(const char *root, int cpu, const char *name)
{
    char path[128];
    (void)snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%d/%s", cpu, name);
    return open_file(root, path);
}

/* A list as the kernel prints it, "0-3,8,10-11"; numbers past the set are left out. Closes the file. 0: none or empty. */
static int read_list(FILE *file, cpu_set *set)
{
    memset(set, 0, sizeof *set);
    if (file == NULL) {
        return 0;
    }
    int found = 0, first, separator = ',';
    while (separator == ',' && fscanf(file, "%d", &first) == 1) {
        int last = first;
        separator = fgetc(file);
        if (separator == '-') {
            if (fscanf(file, "%d", &last) != 1) {
                break;
            }
            separator = fgetc(file);
        }
        for (int i = first < 0 ? CF_MAX_CPUS : first; i <= last && i < CF_MAX_CPUS; i++) {
            set->has[i] = 1;
            found = 1;
        }
    }
    (void)fclose(file);
    return found;
}

/* First integer of a file; 0 when there is none. Closes the file. */
static int read_long(FILE *file, long *value)
{
    if (file == NULL) {
        return 0;
    }
    const int read = fscanf(file, "%ld", value);
    (void)fclose(file);
    return read == 1;
}

/* ---- the affinity mask ------------------------------------------------------------------------------------------- */

static void read_real_affinity(cpu_set *allowed)
{
    memset(allowed, 0, sizeof *allowed);
    cpu_set_t *mask = CPU_ALLOC(CF_MAX_CPUS);
    const size_t bytes = CPU_ALLOC_SIZE(CF_MAX_CPUS);
    if (mask == NULL || sched_getaffinity(0, bytes, mask) != 0) {
        allowed->has[0] = 1;
    } else {
        for (int cpu = 0; cpu < CF_MAX_CPUS; cpu++) {
            allowed->has[cpu] = CPU_ISSET_S((size_t)cpu, bytes, mask) != 0;
        }
    }
    CPU_FREE(mask);
}

static void read_affinity(const char *root, cpu_set *allowed)
{
    FILE *file = *root == '\0' ? NULL : open_file(root, "proc/self/status");
    static const char key[] = "Cpus_allowed_list:";
    char word[64];
    while (file != NULL && fscanf(file, "%63s", word) == 1) {
        if (strcmp(word, key) == 0) {
            (void)read_list(file, allowed);
            return;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    read_real_affinity(allowed);
}

/* ---- cores and nodes --------------------------------------------------------------------------------------------- */

/*
 * A number that the SMT siblings of one core share: the lowest CPU of the core. The lists tell it directly; older
 * kernels have only the pair of package and core, whose core numbers need not be distinct on every kind of package.
 */
static int core_of(const char *root, int cpu, long pairs[][2])
{
    static const char *const lists[] = {"topology/core_cpus_list", "topology/thread_siblings_list"};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        cpu_set siblings;
        if (read_list(open_cpu_file(root, cpu, lists[i]), &siblings) && siblings.has[cpu]) {
            int first = 0;
            while (!siblings.has[first]) {
                first++;
            }
            return first;
        }
    }
    pairs[cpu][0] = pairs[cpu][1] = -1;
    if (!read_long(open_cpu_file(root, cpu, "topology/physical_package_id"), &pairs[cpu][0]) ||
        !read_long(open_cpu_file(root, cpu, "topology/core_id"), &pairs[cpu][1]) || pairs[cpu][1] < 0) {
        return cpu;
    }
    for (int other = 0; other < cpu; other++) {
        if (pairs[other][0] == pairs[cpu][0] && pairs[other][1] == pairs[cpu][1]) {
            return other;
        }
    }
    return cpu;
}

/* Node of every CPU; 0 for those that no node claims. */
static void read_nodes(const char *root, int *node_of)
{
    memset(node_of, 0, CF_MAX_CPUS * sizeof *node_of);
    cpu_set nodes, cpus;
    (void)read_list(open_file(root, "sys/devices/system/node/online"), &nodes);
    for (int node = 0; node < CF_MAX_CPUS; node++) {
        char path[96];
        (void)snprintf(path, sizeof path, "sys/devices/system/node/node%d/cpulist", node);
        /* Nodes of memory alone have an empty list. */
        if (!nodes.has[node] || !read_list(open_file(root, path), &cpus)) {
            continue;
        }
        for (int cpu = 0; cpu < CF_MAX_CPUS; cpu++) {
            node_of[cpu] = cpus.has[cpu] ? node : node_of[cpu];
        }
    }
}

/* Hybrid parts: a capacity per CPU where the kernel has one, else the slow cores of x86 by their own device. */
static int speed_of(const char *root, int cpu, const cpu_set *slow)
{
    long capacity = 0;
    if (read_long(open_cpu_file(root, cpu, "cpu_capacity"), &capacity) && capacity > 0 && capacity <= INT32_MAX) {
        return (int)capacity;
    }
    return slow->has[cpu] ? 0 : 1;
}

static int compare_cpus(const void *a, const void *b)
{
    const cf_cpu *left = a, *right = b;
    if (left->rank != right->rank) {
        return left->rank < right->rank ? -1 : 1;
    }
    if (left->node != right->node) {
        return left->node < right->node ? -1 : 1;
    }
    if (left->speed != right->speed) {
        return left->speed > right->speed ? -1 : 1;
    }
    return (left->cpu > right->cpu) - (left->cpu < right->cpu);
}

static int by_node(const void *a, const void *b)
{
    const cf_cpu *left = a, *right = b;
    if (left->node != right->node) {
        return left->node < right->node ? -1 : 1;
    }
    return compare_cpus(a, b);
}

void cf_topology_read(const char *root, cf_topology *topology)
{
    memset(topology, 0, sizeof *topology);
    cpu_set allowed, online, slow;
    int node_of[CF_MAX_CPUS], core_ranks[CF_MAX_CPUS] = {0};
    long pairs[CF_MAX_CPUS][2];
    read_affinity(root, &allowed);
    if (!read_list(open_file(root, "sys/devices/system/cpu/online"), &online)) {
        online = allowed;
    }
    (void)read_list(open_file(root, "sys/devices/cpu_atom/cpus"), &slow);
    read_nodes(root, node_of);
    memset(pairs, 0xff, sizeof pairs); /* -1: no core */
    uint8_t node_seen[CF_MAX_CPUS] = {0};
    for (int cpu = 0; cpu < CF_MAX_CPUS; cpu++) {
        topology->online += online.has[cpu];
        if (!allowed.has[cpu] || !online.has[cpu]) {
            continue;
        }
        const int rank = core_ranks[core_of(root, cpu, pairs)]++;
        topology->cpus[topology->allowed++] = (cf_cpu){cpu, node_of[cpu], rank, speed_of(root, cpu, &slow)};
        topology->physical += rank == 0;
        topology->nodes += !node_seen[node_of[cpu]];
        node_seen[node_of[cpu]] = 1;
    }
    if (topology->allowed == 0) {
        /* A mask and a list that contradict each other: one worker, wherever the kernel lets it run. */
        topology->cpus[0] = (cf_cpu){0};
        topology->allowed = topology->physical = topology->nodes = 1;
    }
    qsort(topology->cpus, (size_t)topology->allowed, sizeof topology->cpus[0], compare_cpus);
    topology->quota_millicpus = cf_cgroup_millicpus(root);
    const long quota = (topology->quota_millicpus + 999) / 1000;
    topology->threads = quota > 0 && quota < topology->physical ? (int)quota : topology->physical;
    topology->threads = topology->threads < CF_MAX_THREADS ? topology->threads : CF_MAX_THREADS;
}

void cf_topology_place(const cf_topology *topology, int threads, cf_cpu *cpus_out)
{
    int placed = 0;
    /* Rank by rank: all cores before the first sibling. */
    for (int begin = 0, end; begin < topology->allowed && placed < threads; begin = end) {
        end = begin;
        while (end < topology->allowed && topology->cpus[end].rank == topology->cpus[begin].rank) {
            end++;
        }
        const int there = end - begin, wanted = threads - placed < there ? threads - placed : there;
        /* Of the first `i` CPUs of a rank, in the order of their nodes, ceil(wanted * i / there) are taken. */
        for (int node_begin = begin, node_end; node_begin < end; node_begin = node_end) {
            node_end = node_begin;
            while (node_end < end && topology->cpus[node_end].node == topology->cpus[node_begin].node) {
                node_end++;
            }
            const int before = (wanted * (node_begin - begin) + there - 1) / there;
            const int share = (wanted * (node_end - begin) + there - 1) / there - before;
            memcpy(cpus_out + placed, topology->cpus + node_begin, (size_t)share * sizeof *cpus_out);
            placed += share;
        }
    }
    qsort(cpus_out, (size_t)placed, sizeof *cpus_out, by_node);
}

/* ---- public ------------------------------------------------------------------------------------------------------- */

/* Too large for the stack of every thread that may call. */
static cf_topology *new_topology(const char *root)
{
    cf_topology *topology = malloc(sizeof *topology);
    if (topology != NULL) {
        cf_topology_read(root == NULL ? "" : root, topology);
    }
    return topology;
}

int cflow_threads_default(void)
{
    cf_topology *topology = new_topology("");
    const int threads = topology == NULL ? 1 : topology->threads;
    free(topology);
    return threads;
}

const char *cflow_topology_field_name(int field)
{
    static const char *const names[CFLOW_TOPOLOGY_FIELD_COUNT] = {
        [CFLOW_TOPOLOGY_ONLINE] = "online",   [CFLOW_TOPOLOGY_ALLOWED] = "allowed",
        [CFLOW_TOPOLOGY_CORES] = "cores",     [CFLOW_TOPOLOGY_NODES] = "nodes",
        [CFLOW_TOPOLOGY_THREADS] = "threads", [CFLOW_TOPOLOGY_QUOTA_MILLICPUS] = "quota_millicpus",
    };
    return field >= 0 && field < CFLOW_TOPOLOGY_FIELD_COUNT ? names[field] : NULL;
}

int cflow_topology(const char *root, uint64_t *fields_out)
{
    if (fields_out == NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_topology: fields_out is NULL");
    }
    cf_topology *topology = new_topology(root);
    if (topology == NULL) {
        return cf_fail(CFLOW_ERR_MEMORY, "cflow_topology: out of memory");
    }
    fields_out[CFLOW_TOPOLOGY_ONLINE] = (uint64_t)topology->online;
    fields_out[CFLOW_TOPOLOGY_ALLOWED] = (uint64_t)topology->allowed;
    fields_out[CFLOW_TOPOLOGY_CORES] = (uint64_t)topology->physical;
    fields_out[CFLOW_TOPOLOGY_NODES] = (uint64_t)topology->nodes;
    fields_out[CFLOW_TOPOLOGY_QUOTA_MILLICPUS] = (uint64_t)topology->quota_millicpus;
    fields_out[CFLOW_TOPOLOGY_THREADS] = (uint64_t)topology->threads;
    free(topology);
    return CFLOW_OK;
}

int cflow_topology_place(const char *root, int threads, int32_t *cpus_out, int32_t *nodes_out)
{
    if (threads < 1 || cpus_out == NULL || nodes_out == NULL) {
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_topology_place: NULL argument or %d threads", threads);
    }
    cf_topology *topology = new_topology(root);
    if (topology == NULL) {
        return cf_fail(CFLOW_ERR_MEMORY, "cflow_topology_place: out of memory");
    }
    if (threads > topology->allowed) {
        const int allowed = topology->allowed;
        free(topology);
        return cf_fail(CFLOW_ERR_ARGUMENT, "cflow_topology_place: %d threads; allowed: 1 to %d, the CPUs there are",
                       threads, allowed);
    }
    cf_cpu placed[CF_MAX_CPUS];
    cf_topology_place(topology, threads, placed);
    for (int i = 0; i < threads; i++) {
        cpus_out[i] = placed[i].cpu;
        nodes_out[i] = placed[i].node;
    }
    free(topology);
    return CFLOW_OK;
}
