/* cgroup.h - what the control groups of this process allow. */
#ifndef CF_CGROUP_H
#define CF_CGROUP_H

/*
 * The tightest limit of the groups that this process is in and of their parents; 0 = no limit. Versions 1 and 2, in
 * their own and in hybrid mounts. root: "" for this machine, or a folder that holds faked sys/ and proc/ trees. Never
 * fails: what cannot be read is no limit.
 */
long cf_cgroup_millicpus(const char *root); /* thousandths of a CPU, rounded up */
long cf_cgroup_memory_bytes(const char *root);

#endif
