/*
 * A private machine with a private Internet: see labns.h.
 *
 * On the Internet's side every address is local ("local default dev lo"), so any leak arrives and is counted, including
 * metadata addresses and private ranges.
 */
#include "vmctl/labns.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "vmctl/internal.h"
#include "vmctl/rtnl.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/nsfs.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOST_INDEX 10
#define INET_INDEX 20
#define HOST_IF "eth0"

/* ---- namespaces ---- */

static int write_map(const char *file, unsigned inside, unsigned outside)
{
	char text[64];

	snprintf(text, sizeof(text), "%u %u 1\n", inside, outside);
	return ak_write_file(file, text);
}

static int map_self(uid_t inner_uid, uid_t uid, gid_t inner_gid, gid_t gid, struct ak_err *err)
{
	int rc = write_map("/proc/self/uid_map", inner_uid, uid);

	ak_write_file("/proc/self/setgroups", "deny");
	if (rc == 0)
		rc = write_map("/proc/self/gid_map", inner_gid, gid);
	return rc < 0 ? ak_fail_errno(err, -rc, "id map") : 0;
}

static int new_user_namespace(struct ak_err *err)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();

	if (unshare(CLONE_NEWUSER) < 0)
		return sb_explain_userns(err, ak_fail_errno(err, errno, "cannot create a user namespace"));
	return map_self(0, uid, 0, gid, err);
}

int labns_enter(bool *ret_mapped, struct ak_err *err)
{
	const int spaces = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
	int rc;

	if (geteuid() == 0 && unshare(spaces) == 0) {
		*ret_mapped = false;
		return 0;
	}
	rc = new_user_namespace(err);
	if (rc < 0)
		return rc;
	if (unshare(spaces) < 0)
		return sb_explain_userns(err, ak_fail_errno(err, errno, "cannot create a private machine"));
	*ret_mapped = true;
	return 0;
}

int labns_become(uid_t uid, gid_t gid, struct ak_err *err)
{
	if (unshare(CLONE_NEWUSER) < 0)
		return ak_fail_errno(err, errno, "cannot create a second user namespace");
	return map_self(uid, 0, gid, 0, err);
}

int labns_join_net(pid_t pid, struct ak_err *err)
{
	_cleanup_close_ int net = -1, user = -1;
	struct stat theirs, ours;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)pid);
	net = open(path, O_RDONLY | O_CLOEXEC);
	if (net < 0)
		return ak_fail_errno(err, errno, "%s", path);
	user = ioctl(net, NS_GET_USERNS);
	if (user < 0 || fstat(user, &theirs) < 0 || stat("/proc/self/ns/user", &ours) < 0)
		return ak_fail_errno(err, errno, "owner of the network namespace");
	/* The owning user namespace first: it grants the capability needed for the network namespace. */
	if (theirs.st_ino != ours.st_ino && setns(user, CLONE_NEWUSER) < 0)
		return ak_fail_errno(err, errno, "joining the owner of the network namespace");
	return setns(net, CLONE_NEWNET) < 0 ? ak_fail_errno(err, errno, "joining the network namespace") : 0;
}

/* ---- mounts ---- */

static int mount_tmpfs(const char *path, struct ak_err *err)
{
	if (mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755") < 0)
		return ak_fail_errno(err, errno, "private %s", path);
	return 0;
}

/* Mount an empty folder over PATH, if it exists. */
static int cover(const char *path, struct ak_err *err)
{
	struct stat st;

	return stat(path, &st) < 0 || !S_ISDIR(st.st_mode) ? 0 : mount_tmpfs(path, err);
}

static int write_new(const char *path, const char *text, struct ak_err *err)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	int rc = fd < 0 ? -errno : ak_write_all(fd, text, strlen(text));

	return rc < 0 ? ak_fail_errno(err, -rc, "%s", path) : 0;
}

/* resolv.conf is often a link into /run, which is empty here: create its target. */
static int make_target(char path[static PATH_MAX], struct ak_err *err)
{
	char link[PATH_MAX], *slash;
	ssize_t n = readlink("/etc/resolv.conf", link, sizeof(link) - 1);
	int rc;

	if (n <= 0)
		return ak_fail(err, ENOENT, "/etc/resolv.conf does not exist: there is nothing to put a private one over");
	link[n] = '\0';
	if (snprintf(path, PATH_MAX, "%s%s", link[0] == '/' ? "" : "/etc/", link) >= PATH_MAX)
		return ak_fail(err, ENAMETOOLONG, "/etc/resolv.conf");
	slash = strrchr(path, '/');
	*slash = '\0';
	rc = ak_mkdir_p(path, 0755);
	*slash = '/';
	return rc < 0 ? ak_fail_errno(err, -rc, "%s", path) : write_new(path, "", err);
}

static int replace_resolv(const char *scratch, const char *text, struct ak_err *err)
{
	char ours[PATH_MAX], theirs[PATH_MAX];
	int rc;

	snprintf(ours, sizeof(ours), "%s/resolv.conf", scratch);
	rc = write_new(ours, text, err);
	if (rc == 0 && !realpath("/etc/resolv.conf", theirs))
		rc = make_target(theirs, err);
	if (rc < 0)
		return rc;
	return mount(ours, theirs, NULL, MS_BIND, NULL) < 0 ? ak_fail_errno(err, errno, "private %s", theirs) : 0;
}

int labns_mounts(const char *scratch, const char *resolv_conf, struct ak_err *err)
{
	/* Runtime folders of other programs, control groups (ours would outlive us), and the administrator's policies. */
	static const char *const covered[] = { "/run", "/sys/fs/cgroup", "/etc/agentkernel" };
	int rc;

	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return ak_fail_errno(err, errno, "private mounts");
	if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		return ak_fail_errno(err, errno, "private /proc");
	for (size_t i = 0; i < ARRAY_SIZE(covered); i++) {
		rc = cover(covered[i], err);
		if (rc < 0)
			return rc;
	}
	rc = mount_tmpfs(scratch, err);
	return rc < 0 ? rc : replace_resolv(scratch, resolv_conf, err);
}

/* ---- links ---- */

bool labns_has_ipv6(void)
{
	_cleanup_close_ int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	return fd >= 0;
}

static void add_address(struct rtnl_batch *b, uint32_t index, const char *text, unsigned len)
{
	struct ak_addr a;

	if (ak_addr_parse(text, &a) == 0)
		rtnl_address(b, "address", index, &a, len);
}

static void add_default(struct rtnl_batch *b, const char *via, uint32_t index)
{
	struct ak_addr a;

	if (ak_addr_parse(via, &a) == 0)
		rtnl_default_route(b, "default route", index, &a);
}

/* Send the batch, and wait until the link IFNAME (unless NULL) carries packets. */
static int send_batch(struct rtnl_batch *b, const char *ifname, struct ak_err *err)
{
	_cleanup_close_ int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	int rc = fd < 0 ? ak_fail_errno(err, errno, "rtnetlink") : rtnl_send(fd, b, err);

	if (rc == 0 && ifname)
		rtnl_settle(fd, ifname);
	return rc;
}

/* Stop router solicitation and the like on both ends. */
static void quiet_ipv6(void)
{
	ak_write_file("/proc/sys/net/ipv6/conf/default/accept_ra", "0");
	ak_write_file("/proc/sys/net/ipv6/conf/default/addr_gen_mode", "1");
}

int labns_internet_enter(struct ak_err *err)
{
	if (unshare(CLONE_NEWNET) < 0)
		return ak_fail_errno(err, errno, "network namespace of the private Internet");
	quiet_ipv6();
	return 0;
}

int labns_host_link(pid_t internet, struct ak_err *err)
{
	struct rtnl_batch b = { .len = 0 };
	struct ifinfomsg ours = { .ifi_index = HOST_INDEX }, theirs = { .ifi_index = INET_INDEX };
	size_t info, data, peer;

	quiet_ipv6();
	rtnl_begin(&b, "veth pair", RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &ours, sizeof(ours));
	rtnl_attr_str(&b, IFLA_IFNAME, HOST_IF);
	info = rtnl_nest(&b, IFLA_LINKINFO, NULL, 0);
	rtnl_attr_str(&b, IFLA_INFO_KIND, "veth");
	data = rtnl_nest(&b, IFLA_INFO_DATA, NULL, 0);
	peer = rtnl_nest(&b, VETH_INFO_PEER, &theirs, sizeof(theirs));
	rtnl_attr_str(&b, IFLA_IFNAME, LABNS_INET_IF);
	rtnl_attr_u32(&b, IFLA_NET_NS_PID, (uint32_t)internet);
	rtnl_nest_end(&b, peer);
	rtnl_nest_end(&b, data);
	rtnl_nest_end(&b, info);
	rtnl_up(&b, "link up", RTNL_LO_INDEX);
	rtnl_up(&b, "link up", HOST_INDEX);
	add_address(&b, HOST_INDEX, LABNS_HOST4, 24);
	add_address(&b, RTNL_LO_INDEX, LABNS_HOST_PRIVATE4, 32);
	if (labns_has_ipv6())
		add_address(&b, HOST_INDEX, LABNS_HOST6, 64);
	return send_batch(&b, NULL, err);
}

int labns_internet_link(struct ak_err *err)
{
	struct rtnl_batch b = { .len = 0 };

	rtnl_up(&b, "link up", RTNL_LO_INDEX);
	rtnl_up(&b, "link up", INET_INDEX);
	add_address(&b, INET_INDEX, LABNS_INET4, 24);
	rtnl_local_default(&b, "local route", AF_INET);
	if (labns_has_ipv6()) {
		add_address(&b, INET_INDEX, LABNS_INET6, 64);
		rtnl_local_default(&b, "local route", AF_INET6);
	}
	return send_batch(&b, LABNS_INET_IF, err);
}

int labns_host_route(struct ak_err *err)
{
	struct rtnl_batch b = { .len = 0 };

	add_default(&b, LABNS_INET4, HOST_INDEX);
	if (labns_has_ipv6())
		add_default(&b, LABNS_INET6, HOST_INDEX);
	return send_batch(&b, HOST_IF, err);
}
