/* topology.h - which CPUs this process may use, and how many of them it should. */
#ifndef CF_TOPOLOGY_H
#define CF_TOPOLOGY_H

enum { CF_MAX_CPUS = 1024 };

typedef struct cf_topology {
    int allowed;           /* CPUs in the affinity mask */
    int physical;          /* distinct physical cores among them */
    int quota;             /* cgroup CPU quota rounded up to whole CPUs; 0 = none */
    int cpus[CF_MAX_CPUS]; /* allowed CPUs, one per physical core first, then the SMT siblings */
} cf_topology;

/*
 * root: "" for this machine, or a folder that holds faked sys/ and proc/ trees for tests (the affinity mask is always
 * the real one). Never fails: what cannot be read counts as "one core per CPU" and "no quota".
 */
void cf_topology_read(const char *root, cf_topology *topology);

#endif
