/* test_topology.c - cores, nodes, limits of control groups and the placing of workers, from faked /sys and /proc trees. */
#define _GNU_SOURCE
#include "cflow.h"
#include "cgroup.h"
#include "check.h"
#include "topology.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/cflow-topology-XXXXXX";

static void write_file(const char *path, const char *text)
{
    char full[512];
    (void)snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(full, 0700);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    CHECK(file != NULL);
    if (file != NULL) {
        CHECK(fputs(text, file) >= 0);
        CHECK(fclose(file) == 0);
    }
}

static void remove_all(void)
{
    char command[600];
    (void)snprintf(command, sizeof command, "rm -rf '%s'/*", root);
    CHECK(system(command) == 0);
}

static void write_cpu(int cpu, const char *name, const char *text)
{
    char path[128];
    (void)snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%d/%s", cpu, name);
    write_file(path, text);
}

static void write_number(int cpu, const char *name, int value)
{
    char text[16];
    (void)snprintf(text, sizeof text, "%d\n", value);
    write_cpu(cpu, name, text);
}

static void allow(const char *list)
{
    char text[256];
    (void)snprintf(text, sizeof text, "Name:\tmade up\nCpus_allowed:\tff\nCpus_allowed_list:\t%s\nMems_allowed:\t1\n",
                   list);
    write_file("proc/self/status", text);
}

/* The last machine that was read; large, so not on the stack. */
static cf_topology machine;

static const cf_topology *read_topology(void)
{
    cf_topology_read(root, &machine);
    return &machine;
}

static long quota_millicpus(void)
{
    return read_topology()->quota_millicpus;
}

/* What cf_topology_place() gives, as "cpu@node cpu@node ...". */
static const char *placed(int threads)
{
    static char text[4096];
    static cf_cpu cpus[CF_MAX_CPUS];
    cf_topology_place(&machine, threads, cpus);
    size_t length = 0;
    text[0] = '\0';
    for (int i = 0; i < threads && length < sizeof text - 32; i++) {
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%d@%d", i == 0 ? "" : " ", cpus[i].cpu,
                                   cpus[i].node);
    }
    return text;
}

#define CHECK_PLACED(threads, wanted) CHECK(strcmp(placed(threads), wanted) == 0)

/* Nothing but the real affinity mask. */
static void test_no_files(void)
{
    const cf_topology *topology = read_topology();
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CHECK(sched_getaffinity(0, sizeof mask, &mask) == 0);
    CHECK(topology->allowed == CPU_COUNT(&mask));
    CHECK(topology->online == topology->allowed);
    CHECK(topology->physical == topology->allowed);
    CHECK(topology->threads == topology->allowed);
    CHECK(topology->nodes == 1);
    CHECK(topology->quota_millicpus == 0);
    for (int i = 0; i < topology->allowed; i++) {
        CHECK(CPU_ISSET((size_t)topology->cpus[i].cpu, &mask));
    }
}

static void test_quota_v2(void)
{
    allow("0-7");
    write_file("proc/self/cgroup", "0::/a/b\n");
    write_file("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    CHECK(quota_millicpus() == 0);
    CHECK(machine.threads == 8);
    write_file("sys/fs/cgroup/a/b/cpu.max", "150000 100000\n");
    CHECK(quota_millicpus() == 1500);
    CHECK(machine.threads == 2);
    /* The parent's limit binds the child. */
    write_file("sys/fs/cgroup/a/cpu.max", "50000 100000\n");
    CHECK(quota_millicpus() == 500);
    CHECK(machine.threads == 1);
    /* More than there is bounds nothing. */
    write_file("sys/fs/cgroup/a/cpu.max", "max 100000\n");
    write_file("sys/fs/cgroup/a/b/cpu.max", "1000000 100000\n");
    CHECK(quota_millicpus() == 10000);
    CHECK(machine.threads == 8);
    /* A hair more than two CPUs is three. */
    write_file("sys/fs/cgroup/a/b/cpu.max", "200001 100000\n");
    CHECK(quota_millicpus() == 2001);
    CHECK(machine.threads == 3);
    /* Inside a container the group's path need not exist below the mount point; the root still counts. */
    write_file("proc/self/cgroup", "0::/gone\n");
    CHECK(quota_millicpus() == 0);
    write_file("sys/fs/cgroup/cpu.max", "300000 100000\n");
    CHECK(quota_millicpus() == 3000);
    write_file("sys/fs/cgroup/cpu.max", "nonsense\n");
    CHECK(quota_millicpus() == 0);
    write_file("sys/fs/cgroup/cpu.max", "100000 0\n");
    CHECK(quota_millicpus() == 0);
    write_file("sys/fs/cgroup/cpu.max", "9223372036854775807 100000\n");
    CHECK(quota_millicpus() == 0);
    /* No kernel has a period of more than a second. */
    write_file("sys/fs/cgroup/cpu.max", "9000000000000000000 9100000000000000000\n");
    CHECK(quota_millicpus() == 0);
    /* Hybrid: version 2 is mounted beside the folders of version 1. */
    write_file("sys/fs/cgroup/unified/gone/cpu.max", "400000 100000\n");
    CHECK(quota_millicpus() == 4000);
    remove_all();
}

static void test_memory_limit(void)
{
    CHECK(cf_cgroup_memory_bytes(root) == 0); /* no files at all */
    write_file("proc/self/cgroup", "0::/a/b\n");
    write_file("sys/fs/cgroup/a/b/memory.max", "max\n");
    CHECK(cf_cgroup_memory_bytes(root) == 0);
    write_file("sys/fs/cgroup/a/b/memory.max", "1073741824\n");
    CHECK(cf_cgroup_memory_bytes(root) == 1L << 30);
    write_file("sys/fs/cgroup/a/memory.max", "4096\n");
    CHECK(cf_cgroup_memory_bytes(root) == 4096);
    write_file("sys/fs/cgroup/a/memory.max", "-1\n");
    CHECK(cf_cgroup_memory_bytes(root) == 1L << 30);
    /* Version 1: only the memory controller's own hierarchy counts, and its largest number is no limit. */
    write_file("proc/self/cgroup", "5:cpu:/job\n4:memory:/job\n");
    write_file("sys/fs/cgroup/cpu/job/memory.limit_in_bytes", "4096\n");
    write_file("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
    CHECK(cf_cgroup_memory_bytes(root) == 0);
    write_file("sys/fs/cgroup/memory/memory.limit_in_bytes", "8192\n");
    CHECK(cf_cgroup_memory_bytes(root) == 8192);
    remove_all();
}

static void test_quota_v1(void)
{
    write_file("proc/self/cgroup", "4:cpu,cpuacct:/job\n3:cpuset:/job\n");
    write_file("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
    write_file("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
    CHECK(quota_millicpus() == 0);
    write_file("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "400000\n");
    CHECK(quota_millicpus() == 4000);
    /* Under the names of both controllers. */
    write_file("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "250000\n");
    write_file("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
    CHECK(quota_millicpus() == 2500);
    write_file("proc/self/cgroup", "3:cpuset:/job\n");
    CHECK(quota_millicpus() == 0);
    remove_all();
}

/* 2 packages with one node each, 4 cores, siblings numbered after all first threads: the usual server. */
static void write_server(void)
{
    for (int cpu = 0; cpu < 16; cpu++) {
        const int core = cpu % 8;
        char list[16];
        (void)snprintf(list, sizeof list, "%d,%d\n", core, core + 8);
        write_cpu(cpu, "topology/thread_siblings_list", list);
    }
    write_file("sys/devices/system/cpu/online", "0-15\n");
    write_file("sys/devices/system/node/online", "0-1\n");
    write_file("sys/devices/system/node/node0/cpulist", "0-3,8-11\n");
    write_file("sys/devices/system/node/node1/cpulist", "4-7,12-15\n");
    allow("0-15");
}

static void test_nodes_and_siblings(void)
{
    write_server();
    CHECK(read_topology()->allowed == 16);
    CHECK(machine.physical == 8);
    CHECK(machine.nodes == 2);
    CHECK(machine.threads == 8);
    /* Node by node, one worker per core before any sibling, few threads on both nodes. */
    CHECK_PLACED(1, "0@0");
    CHECK_PLACED(2, "0@0 4@1");
    CHECK_PLACED(3, "0@0 1@0 4@1");
    CHECK_PLACED(8, "0@0 1@0 2@0 3@0 4@1 5@1 6@1 7@1");
    CHECK_PLACED(10, "0@0 1@0 2@0 3@0 8@0 4@1 5@1 6@1 7@1 12@1");
    CHECK_PLACED(16, "0@0 1@0 2@0 3@0 8@0 9@0 10@0 11@0 4@1 5@1 6@1 7@1 12@1 13@1 14@1 15@1");
    /* The mask leaves one thread of a core, the second of another, and both of a third. */
    allow("1,10,7,15");
    CHECK(read_topology()->allowed == 4);
    CHECK(machine.online == 16);
    CHECK(machine.physical == 3);
    CHECK_PLACED(3, "1@0 10@0 7@1");
    CHECK_PLACED(4, "1@0 10@0 7@1 15@1");
    /* Nodes in unequal shares get workers in proportion. */
    allow("0-3,4");
    (void)read_topology();
    CHECK_PLACED(4, "0@0 1@0 2@0 3@0");
    CHECK_PLACED(5, "0@0 1@0 2@0 3@0 4@1");
    /* CPUs that went offline are in no list of the kernel. */
    write_file("sys/devices/system/cpu/online", "0-2,4-15\n");
    allow("0-15");
    CHECK(read_topology()->allowed == 15);
    CHECK(machine.physical == 8); /* CPU 11 still stands for the core of CPU 3 */
    CHECK_PLACED(8, "0@0 1@0 2@0 11@0 4@1 5@1 6@1 7@1");
    /* A list and a mask that exclude each other. */
    allow("20");
    CHECK(read_topology()->threads == 1);
    CHECK_PLACED(1, "0@0");
    remove_all();
}

/* Nodes and CPUs with gaps in their numbers, past 64 and past 1,024; a node of memory alone, one without a list. */
static void test_holes_and_many_cpus(void)
{
    write_file("sys/devices/system/node/online", "0,3,7-9\n");
    write_file("sys/devices/system/node/node0/cpulist", "0-31\n");
    write_file("sys/devices/system/node/node3/cpulist", "\n");
    write_file("sys/devices/system/node/node7/cpulist", "96-127\n");
    write_file("sys/devices/system/node/node9/cpulist", "2000-2031\n");
    allow("0-31,96-127,2000-2031");
    CHECK(read_topology()->allowed == 96);
    CHECK(machine.physical == 96);
    CHECK(machine.nodes == 3);
    CHECK_PLACED(6, "0@0 1@0 96@7 97@7 2000@9 2001@9");
    static cf_cpu cpus[CF_MAX_CPUS];
    cf_topology_place(&machine, 64, cpus);
    int on_node[10] = {0};
    for (int i = 0; i < 64; i++) {
        on_node[cpus[i].node]++;
        CHECK(i == 0 || cpus[i].node >= cpus[i - 1].node);
        CHECK(i == 0 || cpus[i].cpu > cpus[i - 1].cpu);
    }
    CHECK(on_node[0] >= 21 && on_node[7] >= 21 && on_node[9] >= 21);
    remove_all();
}

/* Fast cores with two threads, slow ones with one: fast ones first, and no sibling before the last core. */
static void test_hybrid(void)
{
    for (int cpu = 0; cpu < 4; cpu++) {
        write_cpu(cpu, "topology/core_cpus_list", cpu < 2 ? "0-1\n" : "2-3\n");
    }
    for (int cpu = 4; cpu < 8; cpu++) {
        char list[16];
        (void)snprintf(list, sizeof list, "%d\n", cpu);
        write_cpu(cpu, "topology/core_cpus_list", list);
    }
    write_file("sys/devices/cpu_atom/cpus", "4-7\n");
    allow("0-7");
    CHECK(read_topology()->physical == 6);
    CHECK_PLACED(2, "0@0 2@0");
    CHECK_PLACED(3, "0@0 2@0 4@0");
    CHECK_PLACED(7, "0@0 2@0 4@0 5@0 6@0 7@0 1@0");
    remove_all();
    /* Capacities, the slow cores numbered first. */
    allow("0-3");
    for (int cpu = 0; cpu < 4; cpu++) {
        write_number(cpu, "cpu_capacity", cpu < 2 ? 400 : 1024);
    }
    (void)read_topology();
    CHECK_PLACED(3, "2@0 3@0 0@0");
    remove_all();
}

/* Kernels without lists of siblings: package and core; core numbers repeat in every package and leave gaps. */
static void test_package_and_core(void)
{
    for (int cpu = 0; cpu < 8; cpu++) {
        write_number(cpu, "topology/physical_package_id", cpu / 4);
        write_number(cpu, "topology/core_id", cpu % 2 == 0 ? 0 : 9);
    }
    allow("0-7");
    CHECK(read_topology()->physical == 4);
    CHECK_PLACED(4, "0@0 1@0 4@0 5@0");
    /* -1 and half a pair say nothing: a core of its own. */
    for (int cpu = 0; cpu < 8; cpu++) {
        write_number(cpu, "topology/core_id", -1);
    }
    CHECK(read_topology()->physical == 8);
    /* A list that does not hold its own CPU is no list of siblings. */
    write_cpu(1, "topology/core_cpus_list", "0\n");
    write_cpu(2, "topology/core_cpus_list", "nonsense\n");
    CHECK(read_topology()->physical == 8);
    remove_all();
}

static void test_public(void)
{
    write_server();
    write_file("proc/self/cgroup", "0::/\n");
    write_file("sys/fs/cgroup/cpu.max", "250000 100000\n");
    uint64_t fields[CFLOW_TOPOLOGY_FIELD_COUNT];
    int32_t cpus[16], nodes[16];
    CHECK(cflow_topology(root, fields) == CFLOW_OK);
    CHECK(fields[CFLOW_TOPOLOGY_ONLINE] == 16);
    CHECK(fields[CFLOW_TOPOLOGY_ALLOWED] == 16);
    CHECK(fields[CFLOW_TOPOLOGY_CORES] == 8);
    CHECK(fields[CFLOW_TOPOLOGY_NODES] == 2);
    CHECK(fields[CFLOW_TOPOLOGY_QUOTA_MILLICPUS] == 2500);
    CHECK(fields[CFLOW_TOPOLOGY_THREADS] == 3);
    CHECK(cflow_topology_place(root, 3, cpus, nodes) == CFLOW_OK);
    CHECK(cpus[2] == 4 && nodes[0] == 0 && nodes[2] == 1);
    CHECK(cflow_topology_place(root, 17, cpus, nodes) == CFLOW_ERR_ARGUMENT);
    CHECK(cflow_topology_place(root, 0, cpus, nodes) == CFLOW_ERR_ARGUMENT);
    CHECK(cflow_topology_place(root, 1, NULL, nodes) == CFLOW_ERR_ARGUMENT);
    CHECK(cflow_topology(root, NULL) == CFLOW_ERR_ARGUMENT);
    CHECK(cflow_topology(NULL, fields) == CFLOW_OK);
    CHECK(fields[CFLOW_TOPOLOGY_THREADS] == (uint64_t)cflow_threads_default());
    for (int field = 0; field < CFLOW_TOPOLOGY_FIELD_COUNT; field++) {
        CHECK(cflow_topology_field_name(field) != NULL);
    }
    CHECK(cflow_topology_field_name(-1) == NULL);
    CHECK(cflow_topology_field_name(CFLOW_TOPOLOGY_FIELD_COUNT) == NULL);
    remove_all();
}

int main(void)
{
    CHECK(mkdtemp(root) != NULL);
    test_no_files();
    test_quota_v2();
    test_quota_v1();
    test_memory_limit();
    test_nodes_and_siblings();
    test_holes_and_many_cpus();
    test_hybrid();
    test_package_and_core();
    test_public();
    CHECK(rmdir(root) == 0);
    return check_summary("test_topology");
}
