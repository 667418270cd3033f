/* Shared by the checks of `doctor` and the steps of `setup`. */
#ifndef AK_DOCTOR_INTERNAL_H
#define AK_DOCTOR_INTERNAL_H

#include "gateway/doctor/doctor.h"

struct doctor {
	const struct ak_paths *paths; /* borrowed, like the next two */
	const struct doctor_how *how;
	struct doctor_report *report;
};

/* Add a row. FIX is copied; NULL or "" if there is nothing to do. */
void doctor_add(struct doctor *d, const char *id, enum doctor_level level, const char *fix, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

/* Each adds one row or more. */
void doctor_kernel(struct doctor *d);
void doctor_namespaces(struct doctor *d);
void doctor_landlock(struct doctor *d);
void doctor_sandbox(struct doctor *d); /* real runs: without a network, with one, with limits */
void doctor_resolver(struct doctor *d);
void doctor_reach(struct doctor *d);
void doctor_folders(struct doctor *d);
void doctor_leftovers(struct doctor *d);
void doctor_ids(struct doctor *d);
void doctor_programs(struct doctor *d);
void doctor_kvm(struct doctor *d);
void doctor_vm(struct doctor *d);
void doctor_containers(struct doctor *d); /* podman, by trying it, and docker */
void doctor_agents(struct doctor *d);

/*
 * Try `agentkernel run OPTIONS -- true` in a folder of its own and with state and runtime folders of its own: neither settings of the project in the current folder nor the user's list of runs are touched. True if it ended with
 * exit code 0; OUT has the first line of what it printed otherwise, or the notes of a run that worked.
 */
#define DOCTOR_OUT_MAX 4096
bool doctor_try(char *const options[], char out[static DOCTOR_OUT_MAX]);

/*
 * Run a program for at most TIMEOUT_MS and keep the first SIZE - 1 bytes of what it prints on both streams. Returns its exit code, 128+N for
 * signal N, -ETIME, or another -errno if it could not be started.
 * DIR is its folder and ENV its environment; NULL: ours.
 */
int doctor_capture(char *const argv[], const char *dir, char *const env[], int timeout_ms, char *out, size_t size);

/* Ubuntu restricts user namespaces to programs with an AppArmor profile. */
#define DOCTOR_APPARMOR_SYSCTL "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
#define DOCTOR_APPARMOR_PROFILE "/etc/apparmor.d/agentkernel"
bool doctor_apparmor_restricts(void);

/* Whether a tiny guest runs on KVM: 0; -ENOENT without /dev/kvm, -ETIME if it hangs, another -errno. */
int doctor_kvm_guest(struct ak_err *err);

#endif
