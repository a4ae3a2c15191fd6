/* test_topology.c - quotas and cores from faked /sys and /proc trees. */
#define _GNU_SOURCE
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

static cf_topology read_topology(void)
{
    cf_topology topology;
    cf_topology_read(root, &topology);
    return topology;
}

static void test_no_files(void)
{
    const cf_topology topology = read_topology();
    CHECK(topology.allowed >= 1);
    CHECK(topology.physical == topology.allowed);
    CHECK(topology.quota == 0);
}

static void test_quota_v2(void)
{
    write_file("proc/self/cgroup", "0::/a/b\n");
    write_file("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    CHECK(read_topology().quota == 0);
    write_file("sys/fs/cgroup/a/b/cpu.max", "150000 100000\n");
    CHECK(read_topology().quota == 2);
    /* The parent's limit binds the child. */
    write_file("sys/fs/cgroup/a/cpu.max", "50000 100000\n");
    CHECK(read_topology().quota == 1);
    /* Inside a container the group's path need not exist below the mount point; the root still counts. */
    write_file("proc/self/cgroup", "0::/gone\n");
    CHECK(read_topology().quota == 0);
    write_file("sys/fs/cgroup/cpu.max", "300000 100000\n");
    CHECK(read_topology().quota == 3);
    write_file("sys/fs/cgroup/cpu.max", "nonsense\n");
    CHECK(read_topology().quota == 0);
}

static void test_quota_v1(void)
{
    write_file("proc/self/cgroup", "4:cpu,cpuacct:/job\n3:cpuset:/job\n");
    write_file("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
    write_file("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
    CHECK(read_topology().quota == 0);
    write_file("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "400000\n");
    CHECK(read_topology().quota == 4);
    write_file("proc/self/cgroup", "3:cpuset:/job\n");
    CHECK(read_topology().quota == 0);
}

/* All CPUs of the real mask as SMT siblings of one core. */
static void test_siblings(void)
{
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CHECK(sched_getaffinity(0, sizeof mask, &mask) == 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET((size_t)cpu, &mask)) {
            char path[128];
            (void)snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%d/topology/physical_package_id", cpu);
            write_file(path, "0\n");
            (void)snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%d/topology/core_id", cpu);
            write_file(path, "5\n");
        }
    }
    const cf_topology topology = read_topology();
    CHECK(topology.physical == 1);
    CHECK(topology.allowed == CPU_COUNT(&mask));
    for (int i = 0; i < topology.allowed; i++) {
        CHECK(CPU_ISSET((size_t)topology.cpus[i], &mask));
    }
}

int main(void)
{
    CHECK(mkdtemp(root) != NULL);
    test_no_files();
    test_quota_v2();
    test_quota_v1();
    test_siblings();
    char command[600];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", root);
    CHECK(system(command) == 0);
    return check_summary("test_topology");
}
