/* topology.h - which CPUs this process may use, how they are arranged, and how many of them it should use. */
#ifndef CF_TOPOLOGY_H
#define CF_TOPOLOGY_H

enum { CF_MAX_CPUS = 4096 };
enum { CF_MAX_THREADS = 256 }; /* workers of a pool */

typedef struct cf_cpu {
    int cpu;   /* number that the kernel gives it */
    int node;  /* NUMA node, as the kernel numbers it; 0 where the machine does not tell */
    int rank;  /* 0 = first allowed CPU of its physical core, 1 = the first SMT sibling, ... */
    int speed; /* relative to the others of the machine; only its order counts */
} cf_cpu;

typedef struct cf_topology {
    int online;               /* CPUs online; those that the affinity mask leaves out as well */
    int allowed;              /* CPUs in the affinity mask that are online */
    int physical;             /* distinct physical cores among them */
    int nodes;                /* distinct NUMA nodes among them */
    long quota_millicpus;     /* cgroup CPU quota; 0 = none */
    int threads;              /* default: min(allowed, quota rounded up, physical, CF_MAX_THREADS), at least 1 */
    cf_cpu cpus[CF_MAX_CPUS]; /* the allowed CPUs, by rank, then node, then speed (fast first), then number */
} cf_topology;

/*
 * root: "" for this machine, or a folder that holds faked sys/ and proc/ trees for tests, whose affinity mask is that of
 * proc/self/status (the real one when there is no such file). Never fails: what cannot be read counts as "one core per
 * CPU", "one node" and "no quota".
 */
void cf_topology_read(const char *root, cf_topology *topology);

/*
 * CPUs for `threads` workers, 1 to topology->allowed of them: physical cores first, spread over the nodes in proportion
 * to what each has, so that few threads draw on the memory of all nodes; listed node by node, so that neighbouring
 * workers, and with them contiguous shares of a matrix, belong to one node. cpus_out: [threads].
 */
void cf_topology_place(const cf_topology *topology, int threads, cf_cpu *cpus_out);

#endif
