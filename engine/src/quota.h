/* quota.h - how much CPU time the control groups of this process allow. */
#ifndef CF_QUOTA_H
#define CF_QUOTA_H

/*
 * Thousandths of a CPU that the tightest cgroup quota allows, rounded up; 0 = no quota. Versions 1 and 2, in their own
 * and in hybrid mounts. root: "" for this machine, or a folder that holds faked sys/ and proc/ trees. Never fails: what
 * cannot be read is no quota.
 */
long cf_quota_millicpus(const char *root);

#endif
